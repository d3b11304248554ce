"""Devices by what they are: USB serial adapters and PCI functions in a tree of files."""

import random

import pytest
from dpgateway_chardev import CharDevices
from dpgateway_chardev.giving import Giver
from dpgateway_chardev.options import CharDeviceOptions

from dpgateway import Allocation, DeviceNode, DeviceUnavailable, DriverError, Mount, from_plain
from dpgateway.sysfs import Survey, Uevent
from dpgateway.testing import Recorder
from tests.support.listed import reasons
from tests.support.uevents import changes

ROOT = "/sys/devices/pci0000:00/0000:00:14.0"
STICK = {"subsystem": "tty", "attrs": {"idVendor": "0403"}}


@pytest.fixture
def tree(tree):
    tree.write(f"""
        {ROOT}/subsystem -> /sys/bus/pci
        {ROOT}/numa_node = 1
        {ROOT}/usb1/subsystem -> /sys/bus/usb
        {ROOT}/usb1/idVendor = 1d6b
        {ROOT}/usb1/serial = 0000:00:14.0
    """)
    return tree


def plug(tree, port, tty, minor, **attributes):
    """A serial adapter, as the kernel's ftdi_sio shows one."""
    usb, interface = f"{ROOT}/usb1/{port}", f"{ROOT}/usb1/{port}/{port}:1.0"
    here = f"{interface}/{tty}/tty/{tty}"
    for name, value in {"idVendor": "0403", "idProduct": "6001", **attributes}.items():
        tree.write(f"{usb}/{name} = {value}")
    tree.write(f"""
        {usb}/subsystem -> /sys/bus/usb
        {interface}/subsystem -> /sys/bus/usb
        {interface}/{tty}/subsystem -> /sys/bus/usb-serial
        {here}/subsystem -> /sys/class/tty
        {here}/uevent = MAJOR=188\\nMINOR={minor}\\nDEVNAME={tty}
        /sys/class/tty/{tty} -> {here}
        c /dev/{tty} 188:{minor}
    """)


def unplug(tree, port, tty):
    for path in (f"/sys/class/tty/{tty}", f"{ROOT}/usb1/{port}", f"/dev/{tty}"):
        tree.remove(path)


def test_unlistable_bus_is_an_error(tree, drive, no_files):
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    driver = drive(STICK)
    with no_files(), pytest.raises(DriverError, match=r"/sys/bus/tty/devices can't be listed: Too many open files$"):
        driver.devices()
    assert reasons(driver) == {"0403:6001:A1:1.0": None}


def test_unwatched_change_is_seen_later(tree, drive, recorder):
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    plug(tree, "1-2", "ttyUSB1", 1, serial="A2")
    driver = drive(STICK, recorder)
    assert reasons(driver).keys() == {"0403:6001:A1:1.0", "0403:6001:A2:1.0"}
    recorder.changed.clear()
    tree.write(f"{ROOT}/usb1/1-1/serial = B1")
    tree.at("/dev/ttyUSB1").chmod(0o600)
    assert recorder.changed.wait(20)
    assert reasons(driver).keys() == {"0403:6001:B1:1.0", "0403:6001:A2:1.0"}


def test_stick_has_serial_number_and_node(tree, drive):
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    driver = drive(STICK)
    (device,) = driver.devices()
    assert (device.id, device.health.ok, device.numa_nodes) == ("0403:6001:A1:1.0", True, (1,))
    assert device.hardware == ("char 188:0",)
    assert device.attributes == {
        "object": f"{ROOT}/usb1/1-1/1-1:1.0/ttyUSB0/tty/ttyUSB0",
        "node": "/dev/ttyUSB0",
        "address": "1-1:1.0",
        "vendor": "0403",
        "product": "6001",
        "serial": "A1",
    }
    assert driver.allocate([device]) == Allocation(device_nodes=(DeviceNode("/dev/ttyUSB0", None, "rw"),))


def test_identical_sticks_are_two_devices(tree, drive):
    plug(tree, "1-1", "ttyUSB0", 0)
    plug(tree, "1-2", "ttyUSB1", 1)
    assert reasons(drive(STICK)) == {"1-1:1.0": None, "1-2:1.0": None}
    for port, tty in (("1-1", "ttyUSB0"), ("1-2", "ttyUSB1")):
        unplug(tree, port, tty)
    plug(tree, "1-2", "ttyUSB0", 0)
    assert reasons(drive(STICK)) == {"1-2:1.0": None}
    plug(tree, "1-1", "ttyUSB1", 1)
    assert [device.attributes["node"] for device in drive(STICK).devices()] == ["/dev/ttyUSB1", "/dev/ttyUSB0"]


def test_ports_tell_equal_serials_apart(tree, drive):
    plug(tree, "1-1", "ttyUSB0", 0, serial="0001")
    plug(tree, "1-2", "ttyUSB1", 1, serial="0001")
    plug(tree, "1-3", "ttyUSB2", 2, serial="0002")
    assert reasons(drive(STICK)) == {"0403:6001:0002:1.0": None, "1-1:1.0": None, "1-2:1.0": None}


def test_stick_keeps_its_name(tree, drive):
    driver, first = drive(STICK), "0403:6001:0001:1.0"
    plug(tree, "1-1", "ttyUSB0", 0, serial="0001")
    assert reasons(driver) == {first: None}
    plug(tree, "1-2", "ttyUSB1", 1, serial="0001")
    assert reasons(driver) == {first: None, "1-2:1.0": None}
    (device, _) = driver.devices()
    assert driver.allocate([device]).device_nodes[0].host_path == "/dev/ttyUSB0"
    unplug(tree, "1-1", "ttyUSB0")
    assert reasons(driver) == {"1-2:1.0": None}
    plug(tree, "1-1", "ttyUSB5", 5, serial="0001")
    assert reasons(driver) == {first: None, "1-2:1.0": None}
    unplug(tree, "1-1", "ttyUSB5")
    unplug(tree, "1-2", "ttyUSB1")
    plug(tree, "1-3", "ttyUSB0", 0, serial="0001")  # elsewhere it is known by its serial number
    assert reasons(driver) == {first: None}
    plug(tree, "1-1", "ttyUSB1", 1, serial="0001")  # which is taken now
    assert reasons(driver) == {first: None, "1-1:1.0": None}
    assert [device.attributes["node"] for device in driver.devices()] == ["/dev/ttyUSB0", "/dev/ttyUSB1"]


@pytest.mark.parametrize("seed", range(5))
def test_enumeration_changes_no_id(tree, drive, seed):
    order = random.Random(seed)  # noqa: S311  an order, no secret
    ports = {"1-1": "A", "1-2": "", "1-3": "B", "1-4": " "}
    minors = order.sample(range(40), len(ports))
    for port, minor in zip(order.sample(list(ports), len(ports)), minors, strict=True):
        plug(tree, port, f"ttyUSB{minor}", minor, **({"serial": ports[port]} if ports[port] else {}))
    assert list(reasons(drive(STICK))) == ["0403:6001:A:1.0", "0403:6001:B:1.0", "1-2:1.0", "1-4:1.0"]


def test_interfaces_share_a_serial_number(tree, drive):
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    second = f"{ROOT}/usb1/1-1/1-1:1.0/ttyUSB1/tty/ttyUSB1"
    tree.write(f"/sys/class/tty/ttyUSB1 -> {second}\n{second}/uevent = DEVNAME=ttyUSB1\nc /dev/ttyUSB1 188:1")
    (device,) = drive(STICK, group="{attrs:serial}").devices()
    assert device.id == "A1"


def test_objects_with_one_id_are_none(tree, drive):
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    plug(tree, "1-2", "ttyUSB1", 1, serial="A2")
    found = reasons(drive(STICK, id="{attrs:idProduct}"))
    assert list(found) == ["6001"]
    assert "/ttyUSB0 and /sys" in found["6001"]
    assert found["6001"].endswith("have it; set `id`, or match fewer")


def test_wrong_node_is_unhealthy(tree, drive):
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    plug(tree, "1-2", "ttyUSB1", 1, serial="A2")
    tree.remove("/dev/ttyUSB0")
    tree.write("c /dev/ttyUSB1 4:65")
    assert reasons(drive(STICK)) == {
        "0403:6001:A1:1.0": "no such device node: /dev/ttyUSB0",
        "0403:6001:A2:1.0": "expected /dev/ttyUSB1 to be 188:1, as sysfs says, found 4:65",
    }


def test_hostile_attribute_leads_nowhere(tree, drive):
    plug(tree, "1-1", "ttyUSB0", 0, serial="../../etc")
    found = reasons(drive(STICK, mounts=[{"host_path": "/run/{attrs:serial}", "container_path": "/x"}]))
    (reason,) = found.values()
    assert reason == "expected a path without '.', '..' and '//', found '/run/../../etc'"


def test_a_container_gets_what_the_templates_say(tree, drive):
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    plug(tree, "1-2", "ttyUSB1", 1, serial="A2")
    driver = drive(
        STICK,
        id="{attrs:serial}",
        nodes=["{devnode}", {"host_path": "/dev/absent{number}", "optional": True}],
        env={"SERIALS": "{attrs:serial}", "PORT_{index}": "{kernels}", "VENDOR": "{attrs:idVendor}"},
        annotations={"example.com/sticks": "{id}"},
        mounts=[{"host_path": "/run/sticks/{id}", "container_path": "/sticks/{id}", "read_only": False}],
        permissions="r",
        host=str(tree.path),
    )
    tree.write("/run/sticks/A1/\n/run/sticks/A2/")
    devices = driver.devices()
    assert [device.id for device in devices] == ["A1", "A2"]
    assert driver.allocate(devices[::-1]) == Allocation(
        env={"SERIALS": "A2,A1", "PORT_0": "1-2", "PORT_1": "1-1", "VENDOR": "0403"},
        device_nodes=(DeviceNode("/dev/ttyUSB1", None, "r"), DeviceNode("/dev/ttyUSB0", None, "r")),
        mounts=(Mount("/run/sticks/A2", "/sticks/A2", False), Mount("/run/sticks/A1", "/sticks/A1", False)),
        annotations={"example.com/sticks": "A2,A1"},
    )


def test_container_path_is_one_devices(tree, drive):
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    plug(tree, "1-2", "ttyUSB1", 1, serial="A2")
    driver = drive(STICK, id="{attrs:serial}", container_path="/dev/modem")
    devices = driver.devices()
    assert driver.allocate(devices[1:]).device_nodes == (DeviceNode("/dev/ttyUSB1", "/dev/modem", "rw"),)
    with pytest.raises(DriverError, match="/dev/ttyUSB0 of A1 and /dev/ttyUSB1 of A2 can't both be /dev/modem"):
        driver.allocate(devices)
    driver = drive(STICK, id="{attrs:serial}", container_path="/dev/{id}/{name}")
    nodes = driver.allocate(driver.devices()).device_nodes
    assert [node.container_path for node in nodes] == ["/dev/A1/ttyUSB0", "/dev/A2/ttyUSB1"]


GPS = r"^A1: it gives nodes /dev/gps \(char 10:7\) as /dev/gps, rw now, it was .* nodes /dev/gps \(char 10:6\) as"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda tree: tree.remove("/dev/ttyUSB0"), "no such device node: /dev/ttyUSB0"),
        (lambda tree: tree.write("c /dev/ttyUSB0 188:7"), "to be 188:0, as sysfs says, found 188:7"),
        (lambda tree: tree.write("c /dev/gps 10:7"), GPS),
        (lambda tree: unplug(tree, "1-1", "ttyUSB0"), "is gone"),
        (lambda tree: tree.write(f"{ROOT}/usb1/1-1/idVendor = 0404"), "isn't what match describes any more: attrs.id"),
        (lambda tree: tree.write(f"{ROOT}/usb1/1-1/serial = A2"), "A1: /sys/.* is A2 now"),
    ],
    ids=["no node", "another node", "another optional node", "no object", "another vendor", "another identity"],
)
def test_refuses_a_changed_device(tree, drive, change, why):
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    tree.write("c /dev/gps 10:6")
    recorder = Recorder()
    driver = drive(STICK, recorder, id="{attrs:serial}", nodes=["{devnode}", "/dev/gps"])
    devices = driver.devices()
    driver.close()  # so that only allocate can have noticed
    assert len(driver.allocate(devices).device_nodes) == 2
    told = recorder.changes
    change(tree)
    with pytest.raises(DeviceUnavailable, match=why):
        driver.allocate(devices)
    assert recorder.changes == told + 1


def test_a_node_that_comes_is_noticed(tree, drive):
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    tree.remove("/dev/ttyUSB0")
    recorder = Recorder()
    driver = drive(STICK, recorder)
    assert list(reasons(driver).values()) == ["no such device node: /dev/ttyUSB0"]
    recorder.changed.clear()
    tree.write("c /dev/ttyUSB0 188:0")
    assert recorder.changed.wait(20)
    assert list(reasons(driver).values()) == [None]


def test_logs_a_moved_device(tree, drive):
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    recorder = Recorder()
    driver = drive(STICK, recorder)
    driver.devices()
    unplug(tree, "1-1", "ttyUSB0")
    plug(tree, "1-2", "ttyUSB5", 5, serial="A1")
    assert reasons(driver) == {"0403:6001:A1:1.0": None}
    said = "0403:6001:A1:1.0 is char 188:5 now, it was char 188:0: containers that have it keep the old device"
    assert any(message.startswith(said) for message in recorder.messages)


@pytest.fixture
def functions(tree):
    """Two functions with uio, and one bound to nothing."""
    for number, driver in enumerate(("igb_uio", "igb_uio", None)):
        here = f"/sys/devices/pci0000:00/0000:3b:00.{number}"
        tree.write(f"""
            {here}/subsystem -> /sys/bus/pci
            {here}/vendor = 0x8086
            /sys/bus/pci/devices/0000:3b:00.{number} -> {here}
        """)
        if driver:
            tree.write(f"""
                {here}/driver -> /sys/bus/pci/drivers/{driver}
                {here}/uio/uio{7 - number}/
                c /dev/uio{7 - number} 240:{number}
            """)


@pytest.mark.usefixtures("functions")
def test_pci_functions_give_their_nodes(drive):
    driver = drive({"subsystem": "pci", "attr": {"vendor": "0x8086"}, "driver": "igb_uio"}, nodes="/dev/{entry:uio/*}")
    devices = driver.devices()
    assert {device.id: device.hardware for device in devices} == {
        "0000:3b:00.0": ("char 240:0", "pci 0000:3b:00.0"),
        "0000:3b:00.1": ("char 240:1", "pci 0000:3b:00.1"),
    }
    assert devices[0].attributes == {
        "object": "/sys/devices/pci0000:00/0000:3b:00.0",
        "node": "/dev/uio7",
        "address": "0000:3b:00.0",
        "driver": "igb_uio",
        "vendor": "0x8086",
    }
    assert [node.host_path for node in driver.allocate(devices).device_nodes] == ["/dev/uio7", "/dev/uio6"]


@pytest.mark.usefixtures("functions")
def test_devices_without_any_node(drive):
    driver = drive({"subsystem": "pci", "driver": {"present": False}, "attr": {"vendor": "0x8086"}}, nodes=[])
    (device,) = driver.devices()
    assert (device.id, device.health.ok, device.hardware) == ("0000:3b:00.2", True, ("pci 0000:3b:00.2",))
    assert driver.allocate([device]) == Allocation()


@pytest.mark.parametrize("unfit", ["b" * 1030, "b::1"])
def test_unfit_ids_spoil_no_other_device(tree, drive, unfit):
    recorder = Recorder()
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    for number in (2, 3):  # two with one id
        plug(tree, f"1-{number}", f"ttyUSB{number}", number, serial=unfit)
    driver = drive(STICK, recorder, id="{attrs:serial}")
    assert reasons(driver) == {"A1": None}
    assert len(recorder.messages) == 2
    assert all("can't be offered: id: found that device id 'b" in message for message in recorder.messages)
    assert {one.test for one in driver.explain("ttyUSB2")} == {"id"}


def test_logs_objects_without_id(tree, drive):
    plug(tree, "1-1", "ttyUSB0", 0)
    recorder = Recorder()
    assert reasons(drive(STICK, recorder, id="{attrs:serial}")) == {}
    (message,) = recorder.messages
    assert message.endswith("/ttyUSB0 can't be offered: id: found that attrs serial of 1-1 is absent, expected a text")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"match": []}, "found neither, expected either paths .* or match"),
        ({"paths": ["/dev/x"]}, "found both"),
        ({"exclude": ["/dev/x"]}, "exclude: .*expected it with paths only"),
        ({"match": [], "paths": ["/dev/x"], "env": {"A": "b"}}, "env: .*expected it with match only"),
        ({"id": "{attrs:seriel}", "match": {"subsystem": "tty"}}, "id: .*expected a test of the ancestor"),
        ({"id": "{serial}"}, r"id: found \{serial\}; .*, expected one of the fields kernel, "),
        ({"id": "all"}, "id: found 'all', one id for all, expected a template with a field"),
        ({"nodes": "/tmp/{kernel}"}, "nodes: found '/tmp/.*, expected a template that begins with /dev/"),
        ({"nodes": "/dev/{kernl}"}, r"nodes.*found \{kernl\}; did you mean kernel\?"),
        ({"nodes": [{"host_path": "/dev/a", "permissions": "x"}]}, r"permissions: found 'x', expected some of r, w"),
        ({"nodes": [], "container_path": "/dev/x"}, "container_path: .*, expected it with one node"),
        ({"env": {"A=B": "c"}}, "env: found 'A=B', expected names of variables"),
        ({"mounts": [{"host_path": "a", "container_path": "/a"}]}, "host_path: found 'a', expected an absolute path"),
        ({"sysfs": "sys"}, "sysfs: found 'sys', expected an absolute path"),
    ],
)
def test_a_wrong_option_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        from_plain({"match": STICK, **options}, CharDevices.Options)


def test_a_change_in_sysfs_is_noticed(drive):
    """The kernel's own: it says of /dev/null whatever it is told to say."""
    recorder = Recorder()
    driver = drive({"subsystem": "mem", "kernel": "null"}, recorder, sysfs="/sys", dev="/dev")
    assert list(reasons(driver).values()) == [None]
    recorder.changed.clear()
    with changes() as change:
        for name in ("zero", "null"):
            change(name)
    assert recorder.changed.wait(20)


def test_what_udev_finds_out_later_is_noticed(tree, drive):
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    tree.write("/run/udev/data/")
    recorder = Recorder()
    driver = drive({"subsystem": "tty", "env": {"ID_MODEL": "modem*"}}, recorder, id="{env:ID_SERIAL}")
    assert reasons(driver) == {}
    recorder.changed.clear()
    tree.write("/run/udev/data/c188:0 = E:ID_MODEL=modem_2\\nE:ID_SERIAL=x1")
    assert recorder.changed.wait(20)
    assert reasons(driver) == {"x1": None}


VF = "devices/pci0000:3a/0000:3b:00.2"
PF = "devices/pci0000:3a/0000:3b:00.0"
GPU = "devices/pci0000:00/0000:00:01.0/0000:03:00.0"


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"match": {"subsystem": "infiniband_verbs", "attr": {"device/physfn/numa_node": "1"}}}, PF),
        ({"match": {"subsystem": "infiniband_verbs", "attr": {"device/physfn/net/*/dev_port": "1"}}}, f"{PF}/net/pf0"),
        ({"match": {"subsystem": "infiniband_verbs"}, "id": "{attr:device/physfn/numa_node}"}, PF),
        ({"match": {"subsystem": "infiniband_verbs"}, "env": {"A": "{attr:device/physfn/numa_node}"}}, PF),
        ({"match": {"subsystem": "infiniband_verbs", "attr": {"device/vendor": "0x15b4"}}}, VF),
        ({"match": {"subsystem": "drm", "kernel": "card*", "drivers": "amdgpu"}}, GPU),
        ({"match": {"subsystem": "drm", "attrs": {"vendor": "0x1002"}}}, GPU),
    ],
    ids=["the PF", "in the PF", "the PF's id", "the PF's environment", "the VF", "a card's parent", "its attribute"],
)
def test_concerns_cover_dependencies(tree, options, path):
    """The same answer as that of the next slow look, which comes up to 30 s later."""
    tree.write(f"""
        /sys/{VF}/infiniband_verbs/uverbs1/dev = 231:1
        /sys/{VF}/infiniband_verbs/uverbs1/device -> /sys/{VF}
        /sys/{VF}/infiniband_verbs/uverbs1/subsystem -> /sys/class/infiniband_verbs
        /sys/{VF}/vendor = 0x15b3
        /sys/{VF}/physfn -> /sys/{PF}
        /sys/{PF}/numa_node = 0
        /sys/{PF}/net/pf0/dev_port = 0
        /sys/class/infiniband_verbs/uverbs1 -> /sys/{VF}/infiniband_verbs/uverbs1
        /sys/{GPU}/drm/card0/subsystem -> /sys/class/drm
        /sys/{GPU}/vendor = 0x1
        /sys/class/drm/card0 -> /sys/{GPU}/drm/card0
        /sys/bus/pci/devices/
    """)
    survey = survey_of(from_plain({"nodes": [], **options, **tree.roots}, CharDeviceOptions))
    survey.find()
    assert survey.concerns(Uevent("bind", path, "pci"))
    assert not survey.concerns(Uevent("bind", "devices/pci0000:00/0000:00:1f.0", "pci"))
    assert not survey.concerns(Uevent("add", "devices/virtual/net/veth1", "net"))


def test_concerns_only_related_events(tree):
    plug(tree, "1-1", "ttyUSB0", 0, serial="A1")
    survey = survey_of(from_plain({"match": STICK, **tree.roots}, CharDeviceOptions))
    survey.find()
    here = f"{ROOT.removeprefix('/sys/')}/usb1/1-1"
    for path, subsystem, concerned in (
        ("devices/virtual/tty/tty1", "tty", True),
        (here, "usb", True),
        (f"{here}/1-1:1.0/ttyUSB0/tty/ttyUSB0/x", "leds", True),
        (f"{here}/1-1:1.0/ttyUSB0/gpio", "gpio", False),
        ("devices/virtual/net/veth1", "net", False),
        ("devices/pci0000:00", "", True),
    ):
        assert survey.concerns(Uevent("change", path, subsystem)) == concerned, path


def survey_of(options):
    return Survey(options.selection, lambda look: Giver(options, look).device)
