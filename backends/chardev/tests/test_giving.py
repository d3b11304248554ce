"""What a container gets of PCI functions in a tree of files, and what else a device needs."""

import os
import re

import pytest
from dpgateway_chardev.options import CharDeviceOptions

from dpgateway import Allocation, DeviceNode, DeviceUnavailable, DriverError, from_plain
from tests.support.listed import reasons

P = "/sys/devices/pci0000:00"
FUNCTION = {"subsystem": "pci", "driver": "vfio-pci"}


@pytest.fixture
def function(tree):
    """Adds a PCI function: ``function("0000:3b:00.0", "61")``, with a group of VFIO."""

    def add(address, group, driver="vfio-pci", node="c /dev/vfio/{} 240:{}"):
        here = f"{P}/{address}"
        tree.write(f"""
            {here}/subsystem -> /sys/bus/pci
            {here}/driver -> /sys/bus/pci/drivers/{driver}
            {here}/iommu_group -> /sys/kernel/iommu_groups/{group}
            /sys/bus/pci/devices/{address} -> {here}
            {node.format(group, group)}
        """)
        return here

    return add


def test_gives_the_first_existing_path(tree, drive, function):
    function("0000:3b:00.0", "61")
    function("0000:3c:00.0", "62", node="c /dev/vfio/noiommu-{} 240:{}")
    function("0000:3d:00.0", "63", node="")
    paths = ["/dev/vfio/{attr:iommu_group}", "/dev/vfio/noiommu-{attr:iommu_group}"]
    driver = drive(FUNCTION, nodes={"host_path": paths, "container_path": paths[0]})
    devices = driver.devices()
    assert devices[2].health.reason == "no such device node: /dev/vfio/63"
    assert driver.allocate(devices[:2]).device_nodes == (
        DeviceNode("/dev/vfio/61", None, "rw"),
        DeviceNode("/dev/vfio/noiommu-62", "/dev/vfio/62", "rw"),
    )


def test_optional_nodes_may_be_missing(tree, drive, function):
    here = function("0000:3b:00.0", "61")
    tree.write(f"{here}/mad/issm0/\n{here}/mad/issm1/\n{here}/mad/issm2/\nc /dev/issm0 231:64\nc /dev/issm2 231:66")
    path = "/dev/{each:mad/issm*}"
    driver = drive(FUNCTION, nodes=["/dev/vfio/{attr:iommu_group}", {"host_path": path, "optional": True}])
    given = driver.allocate(driver.devices()).device_nodes
    assert [node.host_path for node in given] == ["/dev/vfio/61", "/dev/issm0", "/dev/issm2"]
    assert reasons(drive(FUNCTION, nodes=path)) == {"0000:3b:00.0": "no such device node: /dev/issm1"}
    either = drive(FUNCTION, nodes={"host_path": [path, "/dev/vfio/{attr:iommu_group}"], "optional": True})
    tree.remove("/dev/issm0")
    tree.remove("/dev/issm2")
    assert [node.host_path for node in either.allocate(either.devices()).device_nodes] == ["/dev/vfio/61"]


def test_udev_link_names_the_node(tree, drive, function):
    here = function("0000:3b:00.0", "61")
    tree.write(f"""
        {here}/uevent = MAJOR=240\\nMINOR=61\\nDEVNAME=vfio/61
        /run/udev/data/c240:61 = S:modem\\nS:serial/by-id/usb-A1
        /dev/serial/by-id/usb-A1 -> /dev/vfio/61
    """)
    nodes = ["{symlink:/dev/serial/by-id/*}", {"host_path": "{devnode}", "container_path": "{symlink:/dev/mod*}"}]
    driver = drive(FUNCTION, nodes=nodes, id="{symlink:/dev/serial/*}")
    (device,) = driver.devices()
    assert device.id == "/dev/serial/by-id/usb-A1"
    assert driver.allocate([device]).device_nodes == (
        DeviceNode("/dev/serial/by-id/usb-A1", None, "rw"),
        DeviceNode("/dev/vfio/61", "/dev/modem", "rw"),
    )
    tree.write("/dev/serial/by-id/usb-A1 -> /dev/vfio/vfio\nc /dev/vfio/vfio 10:196")  # it leads elsewhere now
    why = "expected /dev/serial/by-id/usb-A1 to be 240:61, as sysfs says, found 10:196"
    assert reasons(driver) == {device.id: why}


def test_alternatives_have_own_nodes(tree, drive, function):
    function("0000:3b:00.0", "61")
    function("0000:3b:00.1", "62", "other", node="c /dev/control 240:1")
    kinds = [FUNCTION, {"subsystem": "pci", "driver": "other", "optional": True, "nodes": "/dev/control"}]
    driver = drive(kinds, group="{slot:{kernel}}", nodes="/dev/vfio/{attr:iommu_group}")
    (device,) = driver.devices()
    assert [node.host_path for node in driver.allocate([device]).device_nodes] == ["/dev/vfio/61", "/dev/control"]
    tree.remove("/dev/control")
    assert reasons(driver) == {"0000:3b:00": "no such device node: /dev/control"}


def test_environment_can_be_json_of_all_devices(drive, function):
    function("0000:3b:00.0", "61")
    function("0000:3c:00.0", "62")
    info = {
        "{kernel}": {"vfio": {"mount": "/dev/vfio/<{attr:iommu_group}>", "dev": 1}},
        "all": {"ids": "{id}", "no?": "{attr:no}"},
    }
    driver = drive(FUNCTION, nodes=[], env={"X_{resource}": "{kernel}", "X_{resource}_{index}": "a", "INFO": info})
    assert driver.allocate(driver.devices()[::-1]).env == {
        "X_EXAMPLE_COM_STICK": "0000:3c:00.0,0000:3b:00.0",
        "X_EXAMPLE_COM_STICK_0": "a",
        "X_EXAMPLE_COM_STICK_1": "a",
        "INFO": '{"0000:3b:00.0":{"vfio":{"dev":1,"mount":"/dev/vfio/\\u003c61\\u003e"}},'
        '"0000:3c:00.0":{"vfio":{"dev":1,"mount":"/dev/vfio/\\u003c62\\u003e"}},'
        '"all":{"ids":"0000:3c:00.0,0000:3b:00.0"}}',
    }


@pytest.mark.parametrize("place", ["own", "host"])
def test_missing_requirement_is_unhealthy(tree, drive, function, place):
    function("0000:3b:00.0", "61")
    tree.write("/var/x/\n/proc/devices = Character devices:\\n 10 misc")
    fine = {"host_path": "/proc/absent", "text": {"none_of": "-1", "or_absent": True}}
    requires = [
        fine,
        f"/var/{place}/{{attr:iommu_group}}.sock",
        {"host_path": "/proc/devices", "text": "* onload_epoll*"},
    ]
    driver = drive(FUNCTION, nodes=[], requires=requires, host=str(tree.path))
    assert reasons(driver) == {"0000:3b:00.0": f"/var/{place}/61.sock isn't there"}
    tree.write(f"/var/{place}/61.sock = ")
    found = "'Character devices:\\n 10 misc'"
    assert reasons(driver) == {"0000:3b:00.0": f"/proc/devices: found {found}, expected * onload_epoll*"}
    tree.write(f"/proc/devices = {'x' * 5000}")
    (reason,) = reasons(driver).values()
    assert reason.startswith("/proc/devices: found 'xxx")
    assert len(reason) < 300
    tree.write("/proc/devices = Character devices:\\n 10 misc\\n250 onload_epoll")
    assert reasons(driver) == {"0000:3b:00.0": None}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"requires": "/run/x.sock"}, "/run/x.sock isn't there"),
        (
            {"mounts": [{"host_path": "/run/x.sock", "container_path": "/x.sock"}]},
            "it can't be given: /run/x.sock isn't there, and is to be mounted",
        ),
    ],
    ids=["required", "mounted"],
)
def test_a_file_that_comes_is_noticed(tree, drive, function, recorder, *, options, why):
    function("0000:3b:00.0", "61")
    driver = drive(FUNCTION, recorder, nodes=[], **options, host=str(tree.path))
    assert reasons(driver) == {"0000:3b:00.0": why}
    tree.write("/run/x.sock = ")
    assert recorder.until(lambda: reasons(driver) == {"0000:3b:00.0": None})


def test_sets_access_before_giving(tree, drive, function):
    function("0000:3b:00.0", "61")
    tree.write("/run/service/\n/var/run -> /run")
    node, directory = tree.at("/dev/vfio/61"), tree.at("/run/service")
    access = [
        {"host_path": "/dev/vfio/{attr:iommu_group}", "owner": 107, "group": 108, "mode": "0640"},
        {"host_path": "/var/run/service", "group": 109},
    ]
    driver = drive(FUNCTION, nodes="/dev/vfio/{attr:iommu_group}", access=access, host=str(tree.path))
    devices = driver.devices()
    before = directory.stat()
    assert node.stat().st_uid == os.getuid()
    driver.allocate(devices)
    now = node.stat()
    assert (now.st_uid, now.st_gid, now.st_mode & 0o777) == (107, 108, 0o640)
    now = directory.stat()
    assert (now.st_uid, now.st_gid, now.st_mode) == (before.st_uid, 109, before.st_mode)
    tree.remove("/run/service")
    with pytest.raises(DeviceUnavailable, match=r"0000:3b:00.0: can't set owner, .* of /var/run/service: .* No such"):
        driver.allocate(devices)


def test_device_info_lasts_until_release(tree, drive, function):
    function("0000:3b:00.0", "61")
    function("0000:3c:00.0", "62")
    tree.write("/var/run -> /run\n/run/")
    info = {"type": "pci", "version": "1.1.0", "pci": {"pci-address": "{kernel}"}}
    driver = drive(FUNCTION, nodes=[], device_info=info, host=str(tree.path))
    devices = driver.devices()
    driver.allocate(devices)
    driver.allocate(devices)  # a kubelet may ask again
    place = tree.at("/run/k8s.cni.cncf.io/devinfo/dp")
    name = "example.com-stick-0000:3c:00.0-device.json"
    assert sorted(path.name for path in place.iterdir()) == [name.replace("3c", "3b"), name]
    assert (place / name).read_text() == '{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:3c:00.0"}}'
    assert (place / name).stat().st_mode & 0o777 == 0o444
    driver.release([devices[0]])
    driver.release([devices[0]])
    assert [path.name for path in place.iterdir()] == [name]
    assert drive(FUNCTION, nodes=[]).release is None
    tree.remove("/run/k8s.cni.cncf.io")
    tree.write("/run/k8s.cni.cncf.io = a file")
    with pytest.raises(DriverError, match=r"0000:3b:00.0: can't write its device-info file: .*Not a directory"):
        driver.allocate(devices)


def test_parts_have_own_nodes(tree, drive, function):
    function("0000:3b:00.0", "0", node="c /dev/gpu{} 195:{}")
    tree.write("""
        /proc/caps/0/gi1/access = Minor: 12
        /proc/caps/0/gi2/access = Minor: 13
        /proc/caps/config = Minor: 1
        c /dev/cap12 240:12
        c /dev/cap13 240:13
    """)
    nodes = ["/dev/gpu{attr:iommu_group}", "/dev/cap{file:/proc/caps/0/{part}/access#Minor}"]
    driver = drive(FUNCTION, parts="/proc/caps/{attr:iommu_group}/gi*", nodes=nodes)
    devices = driver.devices()
    assert {device.id: device.hardware for device in devices} == {
        "0000:3b:00.0/gi1": ("char 240:12", "pci 0000:3b:00.0 gi1"),
        "0000:3b:00.0/gi2": ("char 240:13", "pci 0000:3b:00.0 gi2"),
    }
    assert driver.allocate([devices[1]]) == Allocation(
        device_nodes=(DeviceNode("/dev/gpu0", None, "rw"), DeviceNode("/dev/cap13", None, "rw"))
    )
    tree.remove("/proc/caps/0/gi1")
    with pytest.raises(DeviceUnavailable, match=re.escape("has no part gi1 any more")):
        driver.allocate([devices[0]])


def test_as_many_parts_as_a_file_says(tree, drive, function):
    function("0000:3b:00.0", "61")
    tree.write("/proc/capacity = sev 1\\ntdx 3")
    driver = drive(FUNCTION, parts={"count": "{file:/proc/capacity#tdx}"}, id="tdx{part}", nodes=[])
    assert list(reasons(driver)) == ["tdx0", "tdx1", "tdx2"]
    tree.write("/proc/capacity = sev 1")
    assert reasons(driver) == {}


def test_the_numa_node_may_be_elsewhere(tree, drive, function):
    here = function("0000:3b:00.0", "61")
    tree.write(f"{here}/numa_node = 1\n{here}/far = 3")
    nodes = [
        drive(FUNCTION, nodes=[], **numa).devices()[0].numa_nodes
        for numa in ({}, {"numa": "{attr:far}"}, {"numa": ""}, {"numa": "{attr:absent}"})
    ]
    assert nodes == [(1,), (3,), (), (1,)]


def test_lists_expected_devices(drive, function):
    function("0000:3b:00.0", "61")
    driver = drive(FUNCTION, nodes=[], expected=["0000:3b:00.0", "0000:3c:00.0"])
    why = "it isn't there: nothing that match describes has this id"
    assert reasons(driver) == {"0000:3b:00.0": None, "0000:3c:00.0": why}


@pytest.mark.parametrize(
    ("options", "key", "problem"),
    [
        ({"env": {"X": 1}}, "env", "expected a text, or a mapping for JSON, in X"),
        ({"env": {"X": {"a": "{atr:b}"}}}, "env", "did you mean attr?"),
        ({"env": {"X": {"{part}": "a"}}}, "env", "found {part}"),
        ({"env": {"X_{id}": "a"}}, "env", "expected names of variables"),
        ({"parts": {}}, "parts", "expected either entries or count"),
        ({"parts": "gi*", "id": "{kernel}"}, "id", "expected a template with {part}"),
        ({"access": [{"host_path": "/x"}]}, "access", "expected owner, group or mode"),
        ({"access": [{"host_path": "/x", "mode": "rw"}]}, "access", "expected three octal digits, as in 0660"),
        ({"access": [{"host_path": "/x", "owner": -1}]}, "access", "expected a number from 0 to 4294967294"),
        ({"access": [{"host_path": "x", "owner": 1}]}, "access", "expected an absolute path"),
        ({"requires": "{kernel}"}, "requires", "expected an absolute path"),
        ({"requires": "/{x}"}, "requires", "found {x}"),
        ({"annotations": {"": "x"}}, "annotations", "expected names that aren't empty"),
        ({"expected": ["a", "b::1"]}, "expected", "ends in '::' and digits"),
        ({"expected": ["a" * 1025]}, "expected", "has 1025 bytes, at most 1024 are allowed"),
        ({"nodes": {"host_path": []}}, "nodes", "expected a template"),
        ({"nodes": {"host_path": "/dev/x", "type": "pipe"}}, "nodes", "expected char or block or any"),
        ({"numa": "{attrs:x}"}, "numa", "expected a test of the ancestor"),
        ({"nodes": "/dev/%k"}, "nodes", "found '/dev/%k', expected {kernel} in place of %k"),
        ({"nodes": {"host_path": "/dev/x", "container_path": "/dev/x%n"}}, "nodes", "expected {number} in place of %n"),
        ({"container_path": "/dev/$kernel"}, "container_path", "expected {kernel} in place of $kernel"),
        ({"id": "{driver}-$id"}, "id", "expected {kernels} in place of $id"),
        ({"symlink": "x"}, "symlink", "; SYMLINK+= of udev's rules is container_path here, and MODE="),
        (
            {"nodes": ["/dev/a", {"host_path": "/dev/b", "container_path": "/dev/a"}]},
            "nodes",
            "nodes[1]: found '/dev/a' for both, expected another path in the container than that of nodes[0]",
        ),
        (
            {"nodes": ["/dev/a", {"host_path": "/dev/a", "permissions": "r"}]},
            "nodes",
            "nodes[1]: found '/dev/a' for both, expected another path in the container than that of nodes[0]",
        ),
        (
            {"nodes": "/dev/x{kernel}", "mounts": [{"host_path": "/b", "container_path": "/dev/x{kernel}"}]},
            "nodes",
            "nodes[0]: found '/dev/x{kernel}' for both, expected another path in the container than that of mounts[0]",
        ),
        (
            {"mounts": [{"host_path": host, "container_path": "/x"} for host in ("/a", "/b")]},
            "mounts",
            "mounts[1]: found '/x' for both, expected another path in the container than that of mounts[0]",
        ),
        (
            {
                "match": [
                    {**FUNCTION, "nodes": ["/dev/a", {"host_path": "/dev/b{kernel}", "container_path": "/dev/a"}]}
                ],
                "nodes": [],
            },
            "nodes",
            "nodes[1]: found '/dev/a' for both, expected another path in the container than that of match[0].nodes[0]",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(options, key, problem):
    with pytest.raises(ValueError, match=key) as caught:
        from_plain({"match": FUNCTION, **options}, CharDeviceOptions)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"nodes": {"host_path": "/dev/{each:uio/*}", "container_path": "/dev/uio"}},
            "it can't be given: /dev/uio0 of 0000:3b:00.0 and /dev/uio1 of 0000:3b:00.0 can't both be /dev/uio in one ",
        ),
        (
            {"nodes": ["/dev/uio0", {"host_path": "/dev/{entry:uio/*}", "permissions": "r"}]},
            "it can't be given: /dev/uio0, rw, of 0000:3b:00.0 and /dev/uio0, r, of 0000:3b:00.0 can't both ",
        ),
        (
            {"nodes": "/dev/uio0", "mounts": [{"host_path": "/sys", "container_path": "/dev/{entry:uio/*}"}]},
            "it can't be given: /dev/uio0 of 0000:3b:00.0 and /sys of 0000:3b:00.0 can't both be /dev/uio0 in one",
        ),
        (
            {"mounts": [{"host_path": "/sys/{kernel}", "container_path": "/x"}]},
            "it can't be given: /sys/0000:3b:00.0 isn't there, and is to be mounted",
        ),
        (
            {"mounts": [{"host_path": "/srv/{kernel}", "container_path": "/x"}]},
            "it can't be given: /srv/0000:3b:00.0 isn't there, and is to be mounted",
        ),
    ],
    ids=["nodes at one path", "two permissions", "a mount on a node", "no such attribute", "no such file"],
)
def test_ungivable_device_is_unhealthy(tree, drive, function, options, why):
    here = function("0000:3b:00.0", "61", node="")
    tree.write(f"{here}/uio/uio0/\n{here}/uio/uio1/\nc /dev/uio0 240:0\nc /dev/uio1 240:1")
    driver = drive(FUNCTION, **{"nodes": [], **options}, host=str(tree.path))
    devices = driver.devices()
    assert devices[0].health.reason.startswith(why)
    with pytest.raises(DeviceUnavailable, match="it was never listed with what it gives"):
        driver.allocate(devices)


def test_clashing_functions_are_unhealthy(tree, drive, function):
    """As Xilinx's own form has it: PCI functions with several nodes."""
    function("0000:3b:00.0", "61")
    function("0000:3b:00.1", "62")
    node = {"host_path": "/dev/vfio/{attr:iommu_group}", "container_path": "/dev/card"}
    driver = drive(FUNCTION, group="{slot:{kernel}}", nodes=node)
    (why,) = reasons(driver).values()
    assert why.startswith("it can't be given: /dev/vfio/61 of 0000:3b:00")
    tree.write("/sys/devices/pci0000:00/0000:3b:00.1/driver -> /sys/bus/pci/drivers/other")
    assert list(reasons(driver).values()) == [None]


def test_clashing_mounts_name_both_devices(tree, drive, function):
    function("0000:3b:00.0", "61")
    function("0000:3c:00.0", "62")
    tree.write("/srv/61/\n/srv/62/")
    mount = {"host_path": "/srv/{attr:iommu_group}", "container_path": "/x"}
    driver = drive(FUNCTION, nodes=[], mounts=[mount], host=str(tree.path))
    devices = driver.devices()
    assert driver.allocate(devices[:1])
    why = r"/srv/61 of 0000:3b:00.0 and /srv/62 of 0000:3c:00.0 can't both be /x in one container: .* with \{id\}"
    with pytest.raises(DriverError, match=why):
        driver.allocate(devices)


def test_blind_pod_accepts_mounts(tree, drive, function, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    function("0000:3b:00.0", "61")
    mount = {"host_path": "/no/such/directory", "container_path": "/x"}
    assert reasons(drive(FUNCTION, nodes=[], mounts=[mount])) == {"0000:3b:00.0": None}
    why = "it can't be given: /no/such/directory isn't there, and is to be mounted"
    assert reasons(drive(FUNCTION, nodes=[], mounts=[mount], host=str(tree.path))) == {"0000:3b:00.0": why}


DISKS = """
    /sys/devices/0000:01:00.0/nvme/nvme0/uevent = MAJOR=240\\nMINOR=0\\nDEVNAME=nvme0
    /sys/devices/0000:01:00.0/nvme/nvme0/dev = 240:0
    /sys/devices/0000:01:00.0/nvme/nvme0/subsystem -> /sys/class/nvme
    /sys/class/nvme/nvme0 -> /sys/devices/0000:01:00.0/nvme/nvme0
    /sys/devices/0000:01:00.0/nvme/nvme0/nvme0n1/uevent = MAJOR=259\\nMINOR=0\\nDEVNAME=nvme0n1
    /sys/devices/0000:01:00.0/nvme/nvme0/nvme0n1/dev = 259:0
    /sys/devices/0000:01:00.0/nvme/nvme0/nvme0n1/subsystem -> /sys/class/block
    /sys/class/block/nvme0n1 -> /sys/devices/0000:01:00.0/nvme/nvme0/nvme0n1
    c /dev/nvme0 240:0
    b /dev/nvme0n1 259:0
"""
CONTROLLER = {"subsystem": "nvme", "nodes": {"host_path": "{devnode}", "type": "char"}}


@pytest.mark.parametrize(
    ("match", "type_", "reason"),
    [
        ([{"subsystem": "block"}, {"subsystem": "nvme"}], "any", None),
        ([{"subsystem": "block"}, CONTROLLER], "block", None),
        (
            [{"subsystem": "block"}, {"subsystem": "nvme"}],
            "block",
            "expected a block device at /dev/nvme0, found a char device; type: any takes both",
        ),
    ],
)
def test_nodes_of_one_device_have_types(tree, drive, match, type_, reason):
    tree.write(DISKS)
    driver = drive(match, group="disks", type=type_)
    (device,) = driver.devices()
    assert device.health.reason == reason
    if reason is None:
        given = driver.allocate([device]).device_nodes
        assert [node.host_path for node in given] == ["/dev/nvme0n1", "/dev/nvme0"]


def test_any_type_still_needs_a_device_node(tree, drive):
    tree.write(DISKS)
    tree.remove("/dev/nvme0")
    tree.write("/dev/nvme0 = text")
    (device,) = drive({"subsystem": "nvme"}, type="any").devices()
    assert device.health.reason == "expected a char or block device at /dev/nvme0, found a regular file"
