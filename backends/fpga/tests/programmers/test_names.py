"""One board has one lock, one journal and one name for its pool, whatever its resources call it."""

import json
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from dpgateway_fpga import Bitstream, Board, Command, FpgaDriver
from dpgateway_fpga.journal import BoardJournal

from backends.fpga.tests.kernel.dfl import Card
from backends.fpga.tests.kernel.gbs import AES, FFT, INTERFACE, gbs_file
from backends.fpga.tests.kernel.left import left_behind
from backends.fpga.tests.kernel.manager import Manager
from dpgateway import Busy, DriverError
from dpgateway.testing import Recorder
from dpgateway_simulator import Kubelet, PluginError
from tests.support.fuse import Directory
from tests.support.gateway import Gateway

CARD, PART = "0000:3b:00.0", "af000000.pcap"
BY_HAND = {"boards": (Board("card", address=CARD),)}
FOUND = {"boards": (), "discover": ("*",)}


class Function(FpgaDriver):
    """The driver of one resource, which is named after its bitstream."""

    def __init__(self, options):
        self.recorder, self.state_dir = Recorder(), options.state_dir
        super().__init__(options, self.recorder.context(f"example.com/{options.bitstream.id}"))

    def start_container(self):
        self.prepare(self.devices())

    @property
    def reasons(self):
        return [device.health.reason or "" for device in self.devices()]

    @property
    def journal_files(self):
        return list(self.state_dir.glob("*.json"))

    @property
    def hardware(self):
        return {name for device in self.devices() for name in device.hardware or ()}


@pytest.fixture
def function(real, tmp_path):
    """A resource, which loads its own name, and has one board."""
    drivers = []

    def make(name, content=None, programmer="fpga-manager", **changes):
        file = tmp_path / f"{name}.bin"
        file.write_bytes(content or name.encode())
        file.chmod(0o644)
        options = real(programmer=programmer, bitstream=Bitstream(file, id=name), **changes)
        drivers.append(Function(options))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


@pytest.fixture
def manager(kernel):
    """On a part of a card."""
    return kernel.manager(f"{CARD}/{PART}")


def loaded(manager):
    return [content.decode() for _, content, _ in manager.loaded]


def test_image_under_any_name(function, manager):
    aes, fft = function("aes", **BY_HAND), function("fft", **FOUND)
    assert [[device.id for device in one.devices()] for one in (aes, fft)] == [["card"], [PART]]
    for one in (aes, fft, aes, aes, fft):
        one.start_container()
    assert loaded(manager) == ["aes", "fft", "aes", "fft"]


def test_hardware_names_for_the_pool(function, manager, kernel):
    aes, fft = function("aes", **BY_HAND), function("fft", **FOUND)
    assert aes.hardware & fft.hardware
    kernel.manager(CARD, 1)
    part = function("part", boards=(Board("part", address=PART),))
    assert not aes.hardware & part.hardware, "the card has a manager of its own now"
    assert aes.hardware < fft.hardware > part.hardware


def test_busy_under_both_names(function, manager):
    gate = manager.hold("write")
    aes, fft = function("aes", wait=timedelta(seconds=0.1), **BY_HAND), function("fft", **FOUND)
    with pytest.raises(Busy):
        aes.start_container()
    assert gate.reached.wait(60)
    with pytest.raises(Busy, match=r"^board 'af000000.pcap' can't be programmed: it is being programmed with aes as "):
        fft.start_container()
    assert fft.reasons == ["it is being programmed with aes as example.com/aes"]
    gate.open()
    fft.recorder.until(lambda: fft.reasons == [""])
    fft.start_container()
    assert (loaded(manager), manager.at_once) == (["aes", "fft"], 1)


def test_faulted_under_both_names(function, manager):
    aes, fft = function("aes", **BY_HAND), function("fft", **FOUND)
    manager.fail = "write"
    with pytest.raises(DriverError):
        aes.start_container()
    manager.state, manager.status, manager.fail = "operating", "", ""
    assert aes.reasons == fft.reasons != [""]
    fft.start_container()
    assert aes.reasons == fft.reasons == [""]


def test_one_journal_per_port(function, kernel):
    """Its bridge is an address of the card as well, as long as nothing else is behind that."""
    card = Card(kernel.host, CARD, INTERFACE, ports=2)
    bridge = Board("port", address="pci0000:3a", port=1)
    aes = function("aes", gbs_file(AES), programmer="dfl", boards=(bridge,))
    fft = function("fft", gbs_file(FFT), programmer="dfl", boards=(Board("other", address=CARD, port=1),))
    assert aes.hardware & fft.hardware
    aes.start_container()
    fft.start_container()
    assert {path.name for path in aes.journal_files} == {f"{CARD}-p1.json"}
    assert card.afus[1] == FFT


def test_tool_by_card_address(function, manager):
    """A tool isn't looked for in /sys, so its board is known by the address alone."""
    tool = function("tool", programmer="command", command=Command(argv=("true",)), **BY_HAND)
    aes = function("aes", **BY_HAND)
    assert aes.hardware & tool.hardware
    for one in (aes, tool, aes, aes, tool, tool):
        one.start_container()
    assert loaded(manager) == ["aes"] * 2
    assert tool.recorder.messages.count("board card runs tool") == 2
    broken = function("broken", programmer="command", command=Command(argv=("false",)), **BY_HAND)
    with pytest.raises(DriverError):
        broken.start_container()
    assert aes.reasons == tool.reasons == ["programming broken failed: false ended with code 1: it said nothing"]
    aes.start_container()
    assert aes.reasons == tool.reasons == [""]


def test_abandoned_load_keeps_tools_off(function, manager):
    gate = manager.hold("write")
    tool = function("tool", programmer="command", command=Command(argv=("true",)), **BY_HAND)
    aes = function("aes", patience=timedelta(seconds=2), **BY_HAND)  # the child is in the write by then
    with pytest.raises(DriverError, match="it is left behind") as failed:
        aes.start_container()
    with left_behind(failed.value) as ended:
        with pytest.raises(Busy, match="another process is programming it"):
            tool.start_container()
        gate.open()
        assert ended()
    assert aes.devices()


# releases that knew a board by its address alone


def written(driver, key, **changes):
    """An entry of such a release: that of the part, under a key."""
    entry = json.loads((driver.state_dir / f"{PART}.json").read_text())
    entry.pop("life", None)
    (driver.state_dir / f"{key}.json").write_text(json.dumps(entry | changes))


def test_what_an_earlier_release_programmed_is_known(function, manager):
    fft = function("fft", **FOUND)
    fft.start_container()
    written(fft, PART)
    fft.start_container()
    assert loaded(manager) == ["fft"]
    assert fft.reasons == [""]
    written(fft, PART, state="faulted", reason="a CRC error")
    assert fft.reasons == ["programming fft failed: a CRC error"]


def test_forgets_earlier_double_names(function, manager):
    fft = function("fft", **FOUND)
    fft.start_container()
    written(fft, CARD)
    fft.start_container()
    assert loaded(manager) == ["fft"], "it was before"
    written(fft, PART)
    fft.start_container()
    assert loaded(manager) == ["fft"] * 2, "nobody knows which was later"
    fft.start_container()
    assert loaded(manager) == ["fft"] * 2


@pytest.mark.parametrize("key", [CARD, PART])
def test_earlier_process_keeps_lock(function, manager, key):
    aes = function("aes", **BY_HAND)
    with (
        BoardJournal(aes.state_dir).locked(key),
        pytest.raises(Busy, match=f"another process .* has locked .*{key}.lock"),
    ):
        aes.start_container()
    assert loaded(manager) == []
    aes.start_container()


# boards that come and go


class Late(Directory):
    """The first look finds nothing."""

    looks = 0

    def items(self):
        self.looks += 1
        return super().items() if self.looks > 1 else {}.items()


def test_newcomer_waits_for_next_look(function, manager, kernel):
    classes = kernel.root["class"]
    classes["fpga_manager"] = Late(classes["fpga_manager"])
    aes = function("aes", **BY_HAND)
    assert aes.reasons == ["it has come since the last look for boards"]
    assert aes.recorder.changes == 1, "the gateway looks again at once"
    assert (aes.reasons, aes.hardware) == ([""], {f"fpga {CARD}", f"fpga {PART}"})


@pytest.mark.parametrize("naming", [{"boards": (Board("card", address="f8007000.devcfg"),)}, FOUND])
def test_returned_board_is_another(function, kernel, naming):
    """Its driver was loaded again, or somebody has put another card there, which runs something as well."""
    first = kernel.manager("f8007000.devcfg")
    aes = function("aes", **naming)
    aes.start_container()
    kernel.unplug("f8007000.devcfg")
    second = kernel.manager("f8007000.devcfg")
    second.state = "operating"
    aes.start_container()
    assert (loaded(first), loaded(second)) == (["aes"], ["aes"])
    second.fail = "write"
    (fft := function("fft", **naming)).devices()
    with pytest.raises(DriverError):
        fft.start_container()
    assert aes.reasons != [""]
    kernel.unplug("f8007000.devcfg")
    kernel.manager("f8007000.devcfg").state = "operating"
    assert aes.reasons == fft.reasons == [""]


def test_absent_board_is_not_programmed(function, kernel):
    aes = function("aes", **BY_HAND)
    with pytest.raises(Busy, match=r"^board 'card' can't be programmed: expected one fpga_manager at 0000:3b:00.0 in"):
        aes.start_container()
    manager = kernel.manager(f"{CARD}/{PART}")
    aes.start_container()
    assert loaded(manager) == ["aes"]


def test_managers_are_separate_boards(function, kernel):
    """So are those that have no device."""
    for number in range(2):
        kernel.manager("f8007000.devcfg", number)
        Manager(kernel.root, f"class/fpga_manager/fpga{number + 2}", kernel.search)
    driver = function("aes", boards=tuple(Board(f"b{number}", address=f"fpga{number}") for number in range(4)))
    assert driver.reasons == [""] * 4
    hardware = [name for device in driver.devices() for name in device.hardware or ()]
    assert len(set(hardware)) == len(hardware)


async def test_one_board_under_two_names(manager, real, tmp_path):
    names = {"aes": {"boards": [{"id": "card", "address": CARD}]}, "fft": {"discover": ["*"]}}
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:  # of a short path, as sockets need it
        path = Path(folder)
        plugins = path / "device-plugins"
        async with Kubelet("1.31", plugins) as kubelet, Gateway(path, plugins) as process:
            await process.start(*(_resource(real(), tmp_path, name, boards) for name, boards in names.items()))
            aes, fft = (f"example.com/{name}" for name in names)
            await kubelet.wait_for(lambda: kubelet.counts(aes)[1] == kubelet.counts(fft)[1] == 1)
            assert (await kubelet.admit("first", {"c": {aes: 1}}))["ok"]
            await kubelet.wait_for(lambda: kubelet.counts(fft)[1] == 0)
            with pytest.raises(PluginError, match=rf"device {PART} .* (is held|is being programmed with aes) as {aes}"):
                await kubelet.allocate(fft, [PART])
            assert loaded(manager) == ["aes"]
            kubelet.remove("first")
            await kubelet.wait_for(lambda: kubelet.counts(fft)[1] == 1, 90)
            assert (await kubelet.admit("second", {"c": {fft: 1}}))["ok"]
            assert loaded(manager) == ["aes", "fft"]
            assert await process.end() == 0


def _resource(options, folder, name, boards):
    file = folder / f"{name}.bin"
    file.write_text(name)
    file.chmod(0o644)
    more = {
        "bitstream": {"path": str(file), "id": name},
        "programmer": "fpga-manager",
        "fpga_manager": {"firmware": str(options.fpga_manager.firmware)},
        "sysfs": options.sysfs,
        "state_dir": str(options.state_dir),
    }
    return {"name": f"example.com/{name}", "driver": "fpga", "pool": "boards", "options": {**boards, **more}}
