"""The chart on a cluster of mixed versions: resources come, pods get their devices."""

from tests.cluster.installed import pod, simulated

THING, ZERO = "example.com/thing", "example.com/zero"
CONFIG = {"resources": [simulated(THING, 2), {"name": ZERO, "driver": "chardev", "options": {"paths": ["/dev/zero"]}}]}


def test_each_node_offers_its_devices_and_pods_get_them(cluster, chart):
    chart.install({"config": CONFIG})
    for node in cluster.nodes:
        chart.until_offered(node, THING, 2)
        chart.until_offered(node, ZERO, 1)
        cluster.apply(pod(f"user-{node}", node, {THING: 1, ZERO: 1}))
    for node in cluster.nodes:
        cluster.wait_for_pod(f"user-{node}")
        environment = cluster.kubectl("exec", f"user-{node}", "--", "env")
        assert [line for line in environment.splitlines() if line.startswith("THING_")] != []
        cluster.kubectl("exec", f"user-{node}", "--", "dd", "if=/dev/zero", "of=/dev/null", "count=1")
