import json

import pytest

PLUGIN = "k8s-host-device-plugin"

NODES = [
    {"hostPath": "/dev/infiniband/uverbs0", "containerPath": "/dev/infiniband/uverbs0", "permission": "rwm"},
    {"hostPath": "/dev/infiniband/rdma_cm", "containerPath": "/dev/rdma_cm", "permission": "r"},
]
CONFIG = {
    "resourceName": "github.com/everpeace-ib",
    "socketName": "everpeace-ib.sock",
    "numDevices": 1000,
    "healthCheckIntervalSeconds": 30,
    "hostDevices": NODES,
}
NAME = "github.com/everpeace-ib"


def manifest(**other):
    text = json.dumps(CONFIG | other, indent=2).replace("\n", "\n    ")
    return f"apiVersion: v1\nkind: ConfigMap\ndata:\n  config.json: |\n    {text}\n"


@pytest.fixture(autouse=True)
def nodes(tree):
    tree.write("""
        c /dev/fuse 10:229
        c /dev/infiniband/uverbs0 231:192
        c /dev/infiniband/rdma_cm 10:58
        /sys/devices/pci0000:00/uverbs0/subsystem -> /sys/class/infiniband_verbs
        /sys/devices/pci0000:00/uverbs0/dev = 231:192
        /sys/devices/pci0000:00/uverbs0/uevent = DEVNAME=infiniband/uverbs0
        /sys/class/infiniband_verbs/uverbs0 -> /sys/devices/pci0000:00/uverbs0
    """)


def test_each_container_gets_all_nodes(imported):
    written = imported(manifest())
    (given,) = written.nodes(NAME).values()
    assert given == [
        ("/dev/infiniband/uverbs0", "/dev/infiniband/uverbs0", "rwm"),
        ("/dev/infiniband/rdma_cm", "/dev/rdma_cm", "r"),
    ]
    shares = written.resources[NAME].shares
    assert (shares.count, shares.ids, written.code) == (1000, "{share}", 0)


def test_one_node(imported):
    one = [{"hostPath": "/dev/fuse", "containerPath": "/dev/fuse", "permission": "rwm"}]
    written = imported(json.dumps(CONFIG | {"hostDevices": one, "numDevices": 5}))
    assert written.nodes(NAME) == {"fuse": [("/dev/fuse", "/dev/fuse", "rwm")]}
    assert written.resources[NAME].shares.count == 5


def test_directories_are_skipped(imported):
    """There a directory gives nothing, also not what is in it."""
    two = [{"hostPath": "/dev/infiniband/", "containerPath": "/dev/infiniband"}, *NODES]
    written = imported(manifest(hostDevices=two))
    assert written.nodes(NAME) == imported(manifest()).nodes(NAME)
    assert [what for _, _, _, what in written.lost] == ["the directory /dev/infiniband/"]
    alone = imported(manifest(hostDevices=two[:1]))
    assert (alone.resources, alone.lost[0][3]) == ({}, "the directory /dev/infiniband/")


def test_what_is_not_kept(imported):
    many = imported(manifest(numDevices=2000))
    assert many.resources[NAME].shares.count == 1000
    assert [what for _, _, _, what in many.lost] == ["numDevices of 2000"]
    pattern = imported(manifest(hostDevices=[{"hostPath": "/dev/mine/*", "containerPath": "/dev/mine/*"}]))
    assert [(name, what) for _, _, name, what in pattern.lost] == [(NAME, "the devices of /dev/mine/*")]
    assert pattern.resources == imported(manifest(numDevices=0)).resources == {}
    elsewhere = imported(manifest(hostDevices=[{"hostPath": "/run/x", "containerPath": "/run/x"}]))
    assert [what for _, _, _, what in elsewhere.lost] == ["/run/x"]


def test_nothing_of_it(importing):
    (refused,) = importing.refused(PLUGIN, "kind: ConfigMap\n")
    assert "found nothing of it" in refused
    assert "hostDevices" in refused


MACHINE = """\
kind: VirtualMachine
metadata: {name: vm}
spec: {template: {spec: {domain: {devices: {hostDevices: [{deviceName: devices.kubevirt.io/tpu, name: tpu}]}}}}}
"""


def test_machines_of_kubevirt(imported, importing):
    """Their key hostDevices says what they ask for."""
    (refused,) = importing.refused(PLUGIN, f"---\n{MACHINE}")
    assert "hostDevices, numDevices; the VirtualMachine of line 2 only asks for devices" in refused
    assert "object KubeVirt or HyperConverged" in refused
    written = imported(f"{MACHINE}---\n{manifest()}")
    assert (list(written.resources), written.not_kept) == ([NAME], [])


def test_host_devices_of_others(importing):
    storage = "storagePools: [{name: a, source: {hostDevices: [/dev/vdb]}}]\n"
    (refused,) = importing.refused(PLUGIN, storage)
    assert "found nothing of it" in refused
