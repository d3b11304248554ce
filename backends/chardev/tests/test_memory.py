"""A look that keeps what no event has touched finds what a look at everything finds."""

import contextlib
import copy
import tempfile
from pathlib import Path

import pytest
from asyncinotify import Inotify, Mask
from dpgateway_chardev.giving import Giver
from dpgateway_chardev.options import CharDeviceOptions
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway import DeviceUnavailable, from_plain
from dpgateway.sysfs import ChangedPlaces, Survey, Uevent
from dpgateway.sysfs.following import PROOF, Proof
from dpgateway.testing import FakeTree

BUS = "/sys/devices/pci0000:00"
HUB = f"{BUS}/0000:00:14.0/usb1"
CONFIGURATIONS = {
    "functions": {
        "match": {"subsystem": "pci", "driver": "vfio", "attr": {"vendor": "0x*"}},
        "nodes": ["/dev/vfio/vfio", "/dev/vfio/{attr:iommu_group}"],
        "env": {"A": "{file:/proc/info#{kernel}}"},
    },
    "groups": {
        "match": [{"subsystem": "pci", "attr": {"vendor": "0x1"}}, {"subsystem": "pci", "optional": True}],
        "group": "{attr:iommu_group}",
        "nodes": ["/dev/vfio/{attr:iommu_group}"],
    },
    "pairs": {"match": {"subsystem": "pci", "driver": "vfio"}, "group": {"size": 2}, "nodes": []},
    "virtual functions": {
        "match": {"subsystem": "pci", "attr": {"physfn/driver": "vfio", "physfn/vendor": "0x1"}},
        "id": "{vf}-{attr:physfn/vendor}",
        "nodes": [],
        "health": {"attr": {"vendor": "0x1"}},
    },
    "parts": {
        "match": {"subsystem": "pci"},
        "parts": "net/*",
        "nodes": [{"host_path": "/dev/vfio/1", "optional": True}],
    },
    "sticks": {
        "match": [
            {"subsystem": "tty", "attrs": {"idVendor": "1", "color": {"none_of": "red", "or_absent": True}}},
            {"subsystem": "tty", "attrs": {"idVendor": "2"}, "env": {"ID_MODEL": "x"}},
        ],
        "requires": ["/dev/ready"],
        "env": {"LINK": "{env:ID_MODEL}"},
    },
    "twins": {
        "match": {"subsystem": "tty", "kernel": "tty*"},
        "expected": ["x"],
        "health": {"attr": {"nothing": {"present": False}}},
    },
}


def survey_of(options):
    return Survey(options.selection, lambda look: Giver(options, look).device)


class Host:
    """A tree that changes, the events of that, and what is known of it by then."""

    def __init__(self, path, options):
        self.tree = FakeTree(path)
        self.options = from_plain({**self.tree.roots, **options}, CharDeviceOptions)
        self.survey = survey_of(self.options)
        self.tree.write("c /dev/vfio/vfio 10:196")
        for number in range(4):
            self.plug(number)
        for number in range(2):
            self.stick(number)
        self.look(None)

    def look(self, changes):
        """The survey of what is kept, compared with one that has nothing but the names that objects have had."""
        survey, full = self.survey, survey_of(self.options)
        full.memory.names = copy.deepcopy(survey.memory.names)
        devices, all_devices = survey.find(changes), full.find()
        assert list(devices.items()) == list(all_devices.items()), changes
        assert survey.notices == full.notices, changes
        for found, wanted in zip(survey.memory.concern, full.memory.concern, strict=True):
            assert wanted <= found, changes
        assert full.directories.keys() <= survey.directories.keys()
        assert all(interest <= survey.directories[at] for at, interest in full.directories.items())

    def heard(self, paths):
        """What a watcher makes of these events; None, if one of them doesn't come to it."""
        files, objects = set(), set()
        for path in paths:
            at = str(self.tree.at(path))
            directory, _, name = at.rpartition("/")
            while directory not in self.survey.directories and not Path(directory).exists():
                directory, _, name = directory.rpartition("/")
            if path.startswith("/sys/"):
                subsystem = "tty" if "tty" in path else "pci"
                if not self.survey.concerns(Uevent("change", path.removeprefix("/sys/"), subsystem)):
                    return None
                objects.add(path.removeprefix("/sys/"))
            elif name not in self.survey.directories.get(directory, ()):
                return None
            else:
                files.add(f"{directory}/{name}")
        return ChangedPlaces(frozenset(objects), frozenset(files))

    def plug(self, number, value=0):
        here = self.function(number)
        self.tree.write(f"""
            {here}/vendor = 0x{value % 3}
            {here}/subsystem -> /sys/bus/pci
            {here}/driver -> /sys/bus/pci/drivers/{"vfio" if value % 4 else "other"}
            {here}/iommu_group -> /sys/kernel/iommu_groups/{value % 3}
            /sys/bus/pci/devices/0000:00:01.{number} -> {here}
        """)
        if number:
            self.tree.write(f"{here}/physfn -> {self.function(0)}")
        return [here]

    def unplug(self, number, _=0):
        with contextlib.suppress(FileNotFoundError):
            self.tree.remove(self.function(number))
        with contextlib.suppress(FileNotFoundError):
            self.tree.remove(f"/sys/bus/pci/devices/0000:00:01.{number}")
        return [self.function(number)]

    def net(self, number, value):
        here = f"{self.function(number)}/net/eth{value % 3}"
        if self.tree.at(here).exists():
            self.tree.remove(here)
        else:
            self.tree.write(f"{here}/")
        return [here]

    def virtual(self, number, value):
        """The kernel says of the physical function that it has others."""
        self.tree.write(f"{self.function(0)}/virtfn{value % 4} -> {self.function(number)}")
        return [self.function(0), self.function(number)]

    def bus(self, _, value):
        self.tree.write(f"{BUS}/numa_node = {value % 2}")
        return [BUS]

    def node(self, number, value):
        path = f"/dev/vfio/{number}" if value % 3 else "/dev/vfio/vfio"
        if self.tree.at(path).exists():
            self.tree.remove(path)
        if value % 2:
            self.tree.write(f"c {path} 240:{value}")
        return [path]

    def nodes(self, _, __):
        """All of a directory."""
        if self.tree.at("/dev/vfio").exists():
            self.tree.remove("/dev/vfio")
        else:
            self.tree.write("c /dev/vfio/1 240:1")
        return ["/dev/vfio"]

    def stick(self, number, value=0):
        usb, tty = f"{HUB}/1-{number}", f"tty{value % 3}"
        here = f"{usb}/1-{number}:1.0/tty/{tty}"
        self.pull(number)
        self.tree.write(f"""
            {usb}/idVendor = {value % 3}
            {usb}/idProduct = 1
            {usb}/serial = {value % 2}
            {usb}/color = {"red" if value % 5 else "green"}
            {usb}/subsystem -> /sys/bus/usb
            {usb}/1-{number}:1.0/subsystem -> /sys/bus/usb
            {here}/uevent = MAJOR=188\\nMINOR={value % 3}\\nDEVNAME={tty}
            {here}/subsystem -> /sys/class/tty
            /sys/class/tty/{tty} -> {here}
        """)
        return [usb, here, f"{HUB}/1-{number}/1-{number}:1.0/tty/tty0"]

    def pull(self, number, _=0):
        with contextlib.suppress(FileNotFoundError):
            self.tree.remove(f"{HUB}/1-{number}")
        return [f"{HUB}/1-{number}", *(f"{HUB}/1-{number}/1-{number}:1.0/tty/tty{tty}" for tty in range(3))]

    def udev(self, number, value):
        self.tree.write(f"/run/udev/data/c188:{number % 3} = E:ID_MODEL={'x' if value % 2 else 'y'}")
        return [f"/run/udev/data/c188:{number % 3}"]

    def device(self, number, value):
        return self._toggle(f"/dev/tty{number % 3}", value)

    def ready(self, _, value):
        return self._toggle("/dev/ready", value)

    def _toggle(self, path, value):
        if self.tree.at(path).exists():
            self.tree.remove(path)
        else:
            self.tree.write(f"c {path} 188:{value % 3}")
        return [path]

    def proc(self, number, value):
        """The kernel has no event for that, but for something else."""
        self.tree.write(f"/proc/info = 0000:00:01.{number}: {value}")
        return [self.function(number)]

    def function(self, number):
        return f"{BUS}/0000:00:01.{number}"


OPERATIONS = [Host.plug, Host.unplug, Host.net, Host.virtual, Host.bus, Host.node, Host.nodes, Host.stick, Host.pull,
              Host.udev, Host.device, Host.ready, Host.proc]  # fmt: skip
fates = st.sampled_from(["told", "told", "lost", "told with the next"])
operations = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 3), st.integers(0, 11), fates), min_size=1, max_size=12
)


@pytest.mark.parametrize("name", CONFIGURATIONS)
@settings(max_examples=8, deadline=None)
@given(operations=operations)
def test_kept_answers_equal_a_full_look(name, operations):
    """After each change whose events came. A lost one is found by the next look at everything."""
    with tempfile.TemporaryDirectory() as directory:
        host = Host(Path(directory), CONFIGURATIONS[name])
        waiting: set[str] = set()
        for change, number, value, fate in operations:
            paths = set(change(host, number, value)) | waiting
            waiting = paths if fate == "told with the next" else set()
            if not waiting:
                host.look(None if fate == "lost" else host.heard(paths))


@pytest.fixture
def functions(tree):
    """Twenty, each with a node of its own."""
    for number in range(20):
        here = f"{BUS}/{name(number)}"
        tree.write(f"""
            {here}/class = 0x2
            {here}/vendor = 0x1
            {here}/subsystem -> /sys/bus/pci
            {here}/iommu_group -> /sys/kernel/iommu_groups/{number}
            /sys/bus/pci/devices/{name(number)} -> {here}
            c /dev/vfio/{number} 240:{number}
        """)
    tree.write("c /dev/vfio/vfio 10:196")
    return tree


def name(number):
    return f"0000:00:{number:02}.0"


@pytest.fixture
def opened(functions):
    """The functions of which anybody has opened a file since this was asked last, once for each file."""
    with Inotify(sync_timeout=0) as inotify:
        for directory in functions.at(BUS).iterdir():
            inotify.add_watch(directory, Mask.OPEN)
        yield lambda: sorted(event.path.parent.name for event in inotify if event.path and event.name)


@pytest.fixture
def driver(functions, drive, recorder):
    """Its first looks are over: the second one is for what changed before it was watched."""
    nodes = ["/dev/vfio/vfio", "/dev/vfio/{attr:iommu_group}"]
    driver = drive({"subsystem": "pci", "attr": {"vendor": "0x1"}}, recorder, nodes=nodes, numa="")
    for _ in range(2):
        recorder.changed.clear()
        driver.devices()
    return driver


def listed(driver):
    return [device.id for device in driver.devices() if device.health.ok]


@pytest.mark.parametrize("change", [("/dev/vfio/7", {7}), ("/dev/vfio/vfio", set(range(20)))])
def test_change_reads_what_it_touches(functions, opened, driver, recorder, change):
    path, touched = change
    opened()  # by the first looks
    functions.remove(path)
    assert recorder.changed.wait(20)
    assert opened() == [], "nothing is read before the gateway asks"
    assert listed(driver) == [name(one) for one in range(20) if one not in touched]
    assert opened() == [name(one) for one in sorted(touched)]
    functions.write(f"c {path} 240:99")
    assert recorder.until(lambda: len(listed(driver)) == 20)


def test_reads_newcomers_only(functions, opened):
    raw = {"match": {"subsystem": "pci", "attr": {"vendor": "0x1"}}, "nodes": [], "numa": ""}
    survey = survey_of(from_plain({**raw, **functions.roots}, CharDeviceOptions))

    def found(changes):
        opened()
        return len(survey.find(changes))

    assert (found(None), len(opened())) == (20, 20)
    functions.write(f"{BUS}/{name(20)}/vendor = 0x1")
    functions.write(f"/sys/bus/pci/devices/{name(20)} -> {BUS}/{name(20)}")
    assert (found(ChangedPlaces()), opened()) == (21, []), "the directory of a bus is always listed"
    functions.remove(f"{BUS}/{name(3)}/vendor")
    assert (found(ChangedPlaces(frozenset({f"devices/pci0000:00/{name(4)}"}))), opened()) == (21, [name(4)])
    assert found(None) == 20


def test_refused_allocation_looks_at_everything(functions, driver, recorder):
    """There was no event for what it found. Nothing that is kept is given."""
    devices = driver.devices()
    functions.write(f"{BUS}/{name(3)}/vendor = 0x2")
    functions.remove("/dev/vfio/7")
    assert recorder.changed.wait(20)
    with pytest.raises(DeviceUnavailable, match=r"what match describes any more: attr\.vendor: found '0x2'"):
        driver.allocate([devices[3]])
    assert listed(driver) == [name(one) for one in range(20) if one not in {3, 7}]


def test_looks_at_everything_now_and_then():
    proof, changes = Proof(), ChangedPlaces(frozenset({"devices/a"}))
    assert (proof.due(changes, 100), proof.wanted) == (None, False)
    assert (proof.due(changes, 100 + PROOF), proof.wanted) == (changes, False)
    assert (proof.due(changes, 101 + PROOF), proof.wanted) == (changes, True), "the quick look comes first"
    assert (proof.due(changes, 102 + PROOF), proof.wanted) == (None, False)
    assert (proof.due(changes, 103 + PROOF), proof.wanted) == (changes, False)
    proof.wanted = True
    assert proof.due(changes, 104 + PROOF) is None
    assert proof.due(None, 105 + PROOF) is None
    assert proof.due(changes, 105 + 2 * PROOF) == changes
