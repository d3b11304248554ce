"""A simulated cluster: what a scheduler and the kubelets of its nodes make of the slices that dpgateway publishes.

A scenario, with a gateway that serves `example.com/x` by DRA as the driver `dra.example.com`::

    async with SimulatedCluster() as cluster:
        kubelet = cluster.node("1.37", root=root)               # root stands for /var/lib/kubelet
        await kubelet.start()
        cluster.device_class("x", "dra.example.com", resource="example.com/x", attributes={"resource": "example.com/x"})
        await cluster.run("agent", {"c": {}})                   # a new gateway waits until the kubelet names a pod
        ...                                                     # a gateway on root, with the server cluster.server.url
        await cluster.run("p1", {"c": {"example.com/x": 1}})    # scheduled, claim prepared, container started
        assert cluster.allocated("p1") == ["a"]                 # devices by their names in the slices
        assert cluster.given("p1")["c"]["envs"] == {...}        # what the container has, by the CDI spec of its claim
        cluster.delete("p1", force=True)                        # or: await cluster.end("p1")
        await kubelet.restart()                                 # kill(), start(), reboot(), upgrade("1.34")
        await cluster.server.down()                             # up(), hang(), resume(), faults, token, forbidden
        cluster.server.store.compact()                          # wipe("resourceslices", {}), off.add(GATE)

A gateway's own process is configured with `cluster: cluster.account(folder)`, `dra: {driver: dra.example.com}` and
`runtime: {cdi_dirs: [root/cdi]}`; its `--node-name` is that of the node.

`cluster.phase(pod)`, `why(pod)` and `events(pod)` say what became of a pod; `kubelet.wait_for_event("prepare failed")`
waits for what the kubelet did; `kubelet.drivers()` has the registered instances. `SHORT` pauses make a test fast, and
`kubelet.clock.advance(30)` turns the clock; `KubeletPauses()` has the real lengths.

selectors    the forms of CEL that are understood
inventory    the devices of a node's slices, and their use
allocating   the allocation of a pod's claims
requesting   which way a pod's requests go, and the claim of its extended resources
scheduler    binds pods to nodes
controllers  claims of templates, claims of pods that ended, garbage
view         what people see
cluster      all together: the door for tests
"""

from dpgateway_simulator.cluster.cluster import SHORT, PodEndedError, SimulatedCluster
from dpgateway_simulator.kubelet.cluster_node import ClusterNode, KubeletPauses

__all__ = ["SHORT", "ClusterNode", "KubeletPauses", "PodEndedError", "SimulatedCluster"]
