"""Several objects that are one device: IOMMU groups, cards of two functions, sets of parts."""

from dataclasses import replace

import pytest
from dpgateway_chardev import CharDevices
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpgateway import Allocation, DeviceNode, DeviceUnavailable, from_plain
from dpgateway.testing import FakeTree, Recorder
from tests.support.listed import reasons

VFIO = {
    "nodes": ["/dev/vfio/{attr:iommu_group}", "/dev/vfio/vfio"],
    "env": {"PCI_RESOURCE_EXAMPLE_COM_GPU": "{kernel}"},
}
GPU = {"subsystem": "pci", "driver": "vfio-pci", "attr": {"class": "0x03*"}}
AUDIO = {"subsystem": "pci", "driver": "vfio-pci", "attr": {"class": "0x0403*"}, "optional": True}


def function(tree, address, iommu_group, number, kind="0x030000", **attributes):
    here = f"/sys/devices/pci0000:00/{address}"
    for name, value in {"class": kind, **attributes}.items():
        tree.write(f"{here}/{name} = {value}")
    tree.write(f"""
        {here}/subsystem -> /sys/bus/pci
        {here}/driver -> /sys/bus/pci/drivers/vfio-pci
        {here}/iommu_group -> /sys/kernel/iommu_groups/{iommu_group}
        /sys/bus/pci/devices/{address} -> {here}
        c /dev/vfio/{iommu_group} 240:{number}
    """)


@pytest.fixture
def cards(tree):
    """A card with its sound in one IOMMU group, one alone, and a sound that belongs to neither."""
    tree.write("c /dev/vfio/vfio 10:196")
    function(tree, "0000:01:00.0", 45, 1)
    function(tree, "0000:01:00.1", 45, 1, "0x040300")
    function(tree, "0000:02:00.0", 46, 2)
    function(tree, "0000:03:00.1", 47, 3, "0x040300")


@pytest.fixture
def gamepad(tree):
    """Event and joystick with nodes, in input7, which has none."""
    pad = "/sys/devices/pci0000:00/usb1/1-2/1-2:1.0/input/input7"
    tree.write(f"""
        /sys/devices/pci0000:00/usb1/1-2/idVendor = 045e
        /sys/devices/pci0000:00/usb1/1-2/subsystem -> /sys/bus/usb
        {pad}/uevent = PRODUCT=3/45e/2ea\\nNAME="pad"
        {pad}/event7/uevent = MAJOR=13\\nMINOR=71\\nDEVNAME=input/event7
        {pad}/js0/uevent = MAJOR=13\\nMINOR=0\\nDEVNAME=input/js0
        c /dev/input/event7 13:71
        c /dev/input/js0 13:0
        /run/udev/data/c13:71 = S:input/by-id/event
        /run/udev/data/c13:0 = S:input/by-id/js
        /dev/input/by-id/event -> /dev/input/event7
        /dev/input/by-id/js -> /dev/input/js0
    """)
    for path in (pad, f"{pad}/event7", f"{pad}/js0"):
        tree.write(f"{path}/subsystem -> /sys/class/input\n/sys/class/input/{path.rpartition('/')[2]} -> {path}")
    return pad


PAD = {"subsystem": "input", "attrs": {"idVendor": "045e"}}


@pytest.mark.usefixtures("gamepad")
@pytest.mark.parametrize(
    ("nodes", "given"),
    [
        ("{devnode}", ["/dev/input/event7", "/dev/input/js0"]),
        ("/dev/{env:DEVNAME}", ["/dev/input/event7", "/dev/input/js0"]),
        ("{symlink:/dev/input/by-id/*}", ["/dev/input/by-id/event", "/dev/input/by-id/js"]),
    ],
)
def test_object_without_node_spoils_no_group(drive, nodes, given):
    driver = drive(PAD, group="{kernels}", nodes=nodes)
    (device,) = driver.devices()
    assert (device.id, device.health.reason) == ("1-2", None)
    assert [node.host_path for node in driver.allocate([device]).device_nodes] == given
    assert {one.device for one in driver.explain(None)} == {"1-2"}


def test_group_without_any_node_is_unhealthy(drive, gamepad, tree):
    want = (
        "devnode of input7 isn't there: it has no node; nodes may have others, and env: {DEVNAME: {present: true}} "
        "in match leaves it out"
    )
    own = PAD | {"nodes": "{devnode}"}
    for driver in (drive(PAD | {"kernel": "input*"}, group="{kernels}"), drive([own], group="{kernels}")):
        assert reasons(driver) == {"1-2": want}
    # a node that is only missing, or whose number can't be read, isn't forgiven
    driver = drive(PAD, group="{kernels}")
    tree.remove("/dev/input/js0")
    assert reasons(driver) == {"1-2": "no such device node: /dev/input/js0"}
    tree.remove(f"{gamepad}/js0/uevent")
    tree.write(f"{gamepad}/js0/uevent/")
    assert reasons(driver)["1-2"].startswith("devnode of js0 isn't there")


def test_part_of_a_name_groups_objects(tree, drive):
    """Two tuners of one stick, which differ only in the directories of their nodes."""
    for number, name in enumerate(["0/demux0", "0/frontend0", "1/demux0", "1/frontend0", "x"]):
        adapter, _, kind = name.rpartition("/")
        here = f"/sys/devices/usb1/1-3/dvb/dvb{adapter}.{kind}"
        node = f"dvb/adapter{name}" if adapter else "dvb/ca"
        tree.write(f"""
            {here}/uevent = MAJOR=212\\nMINOR={number}\\nDEVNAME={node}
            {here}/subsystem -> /sys/class/dvb
            /sys/class/dvb/dvb{adapter}.{kind} -> {here}
            c /dev/{node} 212:{number}
        """)
    recorder = Recorder()
    driver = drive({"subsystem": "dvb"}, recorder, group="{regex:{env:DEVNAME}#adapter[0-9]+}")
    one, two = driver.devices()
    assert (one.id, two.id) == ("adapter0", "adapter1")
    given = [node.host_path for node in driver.allocate([two]).device_nodes]
    assert given == ["/dev/dvb/adapter1/demux0", "/dev/dvb/adapter1/frontend0"]
    (said,) = recorder.messages
    assert "dvb.x can't be offered: group.by: found that regex dvb/ca#adapter[0-9]+ of dvb.x isn't there" in said


@pytest.mark.usefixtures("cards")
def test_functions_of_one_vfio_group_are_joint(drive, tree):
    driver = drive({"subsystem": "pci"}, **VFIO)
    gpu, sound, *_ = driver.devices()
    assert (gpu.hardware, sound.hardware) == (("char 240:1", "pci 0000:01:00.0"), ("char 240:1", "pci 0000:01:00.1"))
    assert gpu.joint
    assert sound.joint
    given = driver.allocate([gpu, sound])
    assert given.env == {"PCI_RESOURCE_EXAMPLE_COM_GPU": "0000:01:00.0,0000:01:00.1"}
    assert [node.host_path for node in given.device_nodes] == ["/dev/vfio/45", "/dev/vfio/vfio"]
    # any other node may be used by two processes
    tree.write("c /dev/x45 240:1\nc /dev/x46 240:2\nc /dev/x47 240:3")
    driver = drive({"subsystem": "pci"}, nodes=["/dev/vfio/{attr:iommu_group}", "/dev/x{attr:iommu_group}"])
    assert [one.joint for one in driver.devices()] == [False] * 4


@pytest.mark.usefixtures("cards")
def test_iommu_group_is_one_device(drive):
    recorder = Recorder()
    driver = drive([GPU, AUDIO], recorder, group="{attr:iommu_group}", **VFIO)
    one, two = driver.devices()
    assert (one.id, one.health.ok, one.hardware) == ("45", True, ("char 240:1", "pci 0000:01:00.0", "pci 0000:01:00.1"))
    assert (two.id, two.health.ok, two.hardware) == ("46", True, ("char 240:2", "pci 0000:02:00.0"))
    assert driver.allocate([two, one]) == Allocation(
        env={"PCI_RESOURCE_EXAMPLE_COM_GPU": "0000:02:00.0,0000:01:00.0,0000:01:00.1"},
        device_nodes=(DeviceNode("/dev/vfio/46"), DeviceNode("/dev/vfio/vfio"), DeviceNode("/dev/vfio/45")),
    )
    (said,) = recorder.messages
    assert said.startswith("/sys/devices/pci0000:00/0000:03:00.1 can't be offered: optional: found nothing that it ")


@pytest.mark.usefixtures("cards")
def test_shared_node_is_shared_hardware(drive):
    first, second, *_ = drive({"subsystem": "pci", "driver": "vfio-pci"}, **VFIO).devices()
    assert set(first.hardware) & set(second.hardware) == {"char 240:1"}


@pytest.mark.usefixtures("cards")
def test_missing_companion_is_named(tree, drive):
    driver = drive(GPU, **VFIO)
    assert not {"char 10:196"} & {name for device in driver.devices() for name in device.hardware}
    tree.remove("/dev/vfio/vfio")
    assert {device.health.reason for device in driver.devices()} == {"no such device node: /dev/vfio/vfio"}


@pytest.mark.usefixtures("cards")
def test_refuses_a_part_that_left(tree, drive):
    driver = drive([GPU, AUDIO], group="{attr:iommu_group}", **VFIO)
    devices = driver.devices()
    tree.write("/sys/devices/pci0000:00/0000:01:00.1/iommu_group -> /sys/kernel/iommu_groups/46")
    with pytest.raises(DeviceUnavailable, match=r"0000:01:00.1 is 0000:01:00.1 of 46 now, it was .* of 45"):
        driver.allocate(devices[:1])
    assert driver.allocate(devices[1:])


@pytest.mark.usefixtures("cards")
def test_needs_one_of_each_kind(drive):
    kinds = [GPU, {**AUDIO, "optional": False}]
    driver = drive(kinds, group={"by": "{attr:iommu_group}", "each": True}, **VFIO)
    assert reasons(driver) == {
        "45": None,
        "46": "there is no object for match[1]",
        "47": "there is no object for match[0]",
    }


def test_size_makes_one_device(tree, drive):
    for number in range(3):
        function(tree, f"0000:0{number}:00.0", 40 + number, number)
    driver = drive(GPU, group={"size": 2}, nodes="/dev/vfio/{attr:iommu_group}")
    assert reasons(driver) == {"0000:00:00.0+0000:01:00.0": None, "0000:02:00.0": "expected 2 objects, found 1"}


def test_a_number_of_objects_of_one_card(tree, drive):
    for number, card in enumerate("AABBB"):
        function(tree, f"0000:0{number}:00.0", 40 + number, number, serial=card)
    driver = drive(GPU, group={"by": "{attr:serial}", "size": 2}, id="card-{group}", nodes=[])
    assert reasons(driver) == {"card-A": None, "card-B": "expected 2 objects, found 3"}


def test_everything_can_be_one_device(tree, drive):
    driver = drive(GPU, group="all", **VFIO)
    assert driver.devices() == ()
    tree.write("c /dev/vfio/vfio 10:196")
    function(tree, "0000:01:00.0", 45, 1)
    function(tree, "0000:02:00.0", 46, 2)
    (device,) = driver.devices()
    assert device.id == "all"
    assert [node.host_path for node in driver.allocate([device]).device_nodes] == [
        "/dev/vfio/45",
        "/dev/vfio/vfio",
        "/dev/vfio/46",
    ]


def test_groups_count_parts(tree, drive):
    recorder = Recorder()
    function(tree, "0000:01:00.0", 41, 1, "0xaa")
    function(tree, "0000:02:00.0", 42, 2, "0xaa")
    function(tree, "0000:03:00.0", 43, 3, "0xbb")
    kinds = [{"subsystem": "pci", "attr": {"class": kind}} for kind in ("0xaa", "0xbb")]
    (device,) = drive(kinds, recorder, group={"each": True}, nodes="/dev/vfio/{attr:iommu_group}").devices()
    assert (device.id, device.hardware) == (
        "0000:01:00.0+0000:03:00.0",
        ("char 240:1", "char 240:3", "pci 0000:01:00.0", "pci 0000:03:00.0"),
    )
    (said,) = recorder.messages
    assert said.startswith("/sys/devices/pci0000:00/0000:02:00.0 can't be offered: group.each: found no counterpart, ")


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({}, "group: found none of them, expected by, size or each"),
        ({"size": 1}, "group.size: found 1, expected 2 or more"),
        ({"size": 2, "each": True}, "group.size: found 2, expected it without each"),
        ("{attr}", "group: .*expected the path of an attribute"),
        ("{attrs:slot}", "group: .*expected a test of the ancestor"),
    ],
)
def test_a_wrong_group_is_refused(group, message):
    with pytest.raises(ValueError, match=message):
        from_plain({"match": GPU, "group": group}, CharDevices.Options)


addresses = st.integers(0, 30).map("0000:{:02x}:00.0".format)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(cards=st.dictionaries(addresses, st.booleans(), min_size=1, max_size=4), data=st.data())
def test_ids_ignore_order_and_optional_parts(tmp_path_factory, cards, data):
    """The groups' numbers, the nodes' numbers, and which cards have their sound: none of it is in an id."""
    tree = FakeTree(tmp_path_factory.mktemp("tree"))
    numbers = data.draw(st.permutations(range(len(cards))))
    for number, address in zip(numbers, data.draw(st.permutations(list(cards))), strict=True):
        function(tree, address, 40 + number, number)
        if cards[address]:
            function(tree, address[:-1] + "1", 40 + number, number, "0x040300")
    options = {
        "match": [GPU, AUDIO],
        "group": "{attr:iommu_group}",
        "id": "{slot:{kernel}}",
        "nodes": "/dev/vfio/{attr:iommu_group}",
    }
    driver = CharDevices(from_plain({**options, **tree.roots}, CharDevices.Options), Recorder().context())
    assert [device.id for device in driver.devices()] == [address[:-2] for address in sorted(cards)]
    driver.close()


# ids name one thing for ever


def sticks(tree, *names):
    """USB devices that have nothing but their serial numbers; a name in capitals is of another kind."""
    for name in names:
        here = f"/sys/devices/pci0000:00/0000:00:14.0/usb1/1-{name}"
        tree.write(f"""
            {here}/idVendor = 0403
            {here}/idProduct = {"0002" if name.isupper() else "0001"}
            {here}/serial = {name}
            {here}/subsystem -> /sys/bus/usb
            /sys/bus/usb/devices/1-{name} -> {here}
        """)


def unplug(tree, *names):
    for name in names:
        tree.remove(f"/sys/bus/usb/devices/1-{name}")
        tree.remove(f"/sys/devices/pci0000:00/0000:00:14.0/usb1/1-{name}")


STICK = {"subsystem": "usb", "attr": {"idVendor": "0403"}}
KINDS = [{"subsystem": "usb", "attr": {"idProduct": f"000{number}"}} for number in (1, 2)]


def found(driver, *, short="0403:0001:"):
    """Each device's id without vendor and product, and why it is Unhealthy."""
    return {
        device.id.replace(short, "").replace("0403:0002:", ""): device.health.reason and device.health.reason[:27]
        for device in driver.devices()
    }


ONE_OF_TWO = "expected 2 objects, found 1"


def test_pair_ignores_a_newcomer(tree, drive):
    sticks(tree, "b", "d")
    driver = drive(STICK, group={"size": 2}, nodes=[])
    assert found(driver) == {"b+d": None}
    sticks(tree, "a")
    assert found(driver) == {"b+d": None, "a": ONE_OF_TWO}
    sticks(tree, "c")
    assert found(driver) == {"b+d": None, "a+c": None}


def test_incomplete_pair_keeps_its_id(tree, drive):
    sticks(tree, "a", "b", "c", "d")
    driver = drive(STICK, group={"size": 2}, nodes=[])
    assert found(driver) == {"a+b": None, "c+d": None}
    unplug(tree, "a")
    assert found(driver) == {"a+b": ONE_OF_TWO, "c+d": None}
    (device, _) = driver.devices()
    assert device.health.reason == "expected 2 objects, found 1: 0403:0001:a is missing"
    sticks(tree, "e")  # it isn't a's
    assert found(driver) == {"a+b": ONE_OF_TWO, "c+d": None, "e": ONE_OF_TWO}
    unplug(tree, "b")
    assert found(driver) == {"c+d": None, "e": ONE_OF_TWO}
    sticks(tree, "a", "b")
    assert found(driver) == {"a+b": None, "c+d": None, "e": ONE_OF_TWO}


def test_each_keeps_its_members(tree, drive):
    sticks(tree, "b", "d", "B")
    driver = drive(KINDS, group={"each": True}, nodes=[])
    assert found(driver) == {"b+B": None}
    sticks(tree, "a", "A")
    assert found(driver) == {"b+B": None, "a+A": None}
    unplug(tree, "B")
    sticks(tree, "C")
    assert found(driver) == {"b+B": "there is no object for matc", "a+A": None, "d+C": None}
    sticks(tree, "B")
    assert found(driver) == {"b+B": None, "a+A": None, "d+C": None}


def test_optional_part_stays_outside_ids(tree, drive):
    kinds = [KINDS[0], {**KINDS[1], "optional": True}]
    sticks(tree, "b", "B")
    driver = drive(kinds, group={"each": True}, nodes=[], env={"S": "{attr:serial}"})

    def parts():
        return {device.id[-1]: driver.allocate([device]).env["S"] for device in driver.devices() if device.health.ok}

    assert parts() == {"b": "b,B"}
    sticks(tree, "a", "A")
    assert parts() == {"b": "b,B", "a": "a,A"}
    unplug(tree, "B")
    sticks(tree, "C")
    assert parts() == {"b": "b", "a": "a,A"}
    unplug(tree, "b")
    sticks(tree, "B")
    assert found(driver) == {"b": "there is no object for matc", "a": None}


@pytest.mark.parametrize("more", [{}, {"size": 2}, {"each": True}], ids=["by", "by and size", "by and each"])
def test_card_keeps_its_id(tree, drive, more):
    kinds = [{**GPU, "kernel": f"*.{number}"} for number in range(2)]
    for number in range(2):
        function(tree, f"0000:01:00.{number}", 41 + number, number)
    driver = drive(kinds, group={"by": "{slot:{kernel}}", **more}, nodes=[])
    restarted = drive(kinds, group={"by": "{slot:{kernel}}", **more}, nodes=[])
    assert [(device.id, device.health.ok) for device in driver.devices()] == [("0000:01:00", True)]
    tree.remove("/sys/bus/pci/devices/0000:01:00.0")
    for one in driver, restarted:
        assert [(device.id, device.health.ok) for device in one.devices()] == [("0000:01:00", not more)]


def test_card_keeps_its_templated_id(tree, drive):
    for number in range(2):
        function(tree, f"0000:01:00.{number}", 41, number)
    driver = drive(GPU, group={"by": "{slot:{kernel}}", "size": 2}, id="gpu-{kernel}", nodes=[])
    assert {device.id: device.health.ok for device in driver.devices()} == {"gpu-0000:01:00.0": True}
    tree.remove("/sys/bus/pci/devices/0000:01:00.0")
    assert {device.id: device.health.ok for device in driver.devices()} == {"gpu-0000:01:00.0": False}


def test_templated_id_is_one_cards(tree, drive):
    """The kernel counts IOMMU groups, so another card may have the number later."""
    function(tree, "0000:01:00.0", 41, 1)
    driver = drive(GPU, group="{attr:iommu_group}", id="{kernel}", nodes=[])
    assert [device.id for device in driver.devices()] == ["0000:01:00.0"]
    tree.remove("/sys/bus/pci/devices/0000:01:00.0")
    function(tree, "0000:02:00.0", 41, 1)
    assert [device.id for device in driver.devices()] == ["0000:02:00.0"]


@pytest.mark.usefixtures("cards")
def test_card_without_needed_function_is_unhealthy(tree, drive):
    driver = drive([GPU, AUDIO], group="{attr:iommu_group}", **VFIO)
    assert reasons(driver) == {"45": None, "46": None}
    tree.remove("/sys/bus/pci/devices/0000:01:00.0")
    assert reasons(driver) == {"45": "all that isn't optional is missing", "46": None}


def test_empty_group_text_is_no_group(tree, drive, recorder):
    for number in range(2):
        function(tree, f"0000:0{number}:00.0", 40 + number, number, serial="")
    assert drive(GPU, recorder, group="{attr:serial}", nodes=[]).devices() == ()
    assert "group.by: found an empty text, expected a text" in recorder.messages[0]


changes = st.lists(st.sampled_from("abcdeABCDE"), max_size=12)


@pytest.mark.parametrize("group", [{"size": 2}, {"size": 3}, {"each": True}], ids=str)
@settings(max_examples=15, deadline=None)
@given(changes=changes)
def test_id_means_the_same_objects(tmp_path_factory, group, changes):
    tree = FakeTree(tmp_path_factory.mktemp("tree"))
    tree.write("/sys/bus/usb/devices/")
    options = {"match": KINDS if group.get("each") else STICK, "group": group, "nodes": []}
    options["env"] = {"S": "{attr:serial}"}
    driver = CharDevices(from_plain({**options, **tree.roots}, CharDevices.Options), Recorder().context())
    there: set[str] = set()
    known: dict[str, str] = {}
    for name in changes:
        (unplug if name in there else sticks)(tree, name)
        there.symmetric_difference_update({name})
        for device in driver.devices():
            if device.health.ok:
                objects = driver.allocate([device]).env["S"]
                assert known.setdefault(device.id, objects) == objects
        ids = {device.id for device in driver.devices()}
        for id_, objects in known.items():
            assert (id_ in ids) == bool(there & set(objects.split(","))), "it is listed as long as any of it is there"
    driver.close()


def test_held_pair_is_formed_again(tree):
    sticks(tree, "a", "b", "c", "d")
    context = replace(Recorder().context(), held=lambda: {"0403:0001:b+0403:0001:d", "no id of ours"})
    options = {"match": STICK, "group": {"size": 2}, "nodes": [], **tree.roots}
    driver = CharDevices(from_plain(options, CharDevices.Options), context)
    assert found(driver) == {"b+d": None, "a+c": None}
    driver.close()
