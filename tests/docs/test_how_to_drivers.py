"""Each example of the how-to keeps the contract, does what the page says of it, and serves pods."""

import importlib
import json
import os
import re
from datetime import timedelta

import pytest

from dpgateway import Busy, DeviceUnavailable, DriverError
from dpgateway.sysfs import Kind, Match, Test
from dpgateway.testing import FakeTree, Recorder, check_driver
from tests.docs.conftest import Place
from tests.docs.examples import installed
from tests.docs.pages import Page, check_output

pytestmark = pytest.mark.xdist_group("place")

PAGE = Page("how-to/drivers.md")
EXAMPLES = sorted(name.removesuffix(".py") for name in PAGE.files if name.endswith(".py"))


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory):
    """The examples, installed as drivers of their modules' names."""
    directory = tmp_path_factory.mktemp("site")
    (directory / "config.yaml").write_text(PAGE.files["config.yaml"])
    with installed(directory, {name: PAGE.files[f"{name}.py"] for name in EXAMPLES}):
        yield directory


@pytest.fixture
def options(tmp_path):
    """Options with which an example has a healthy device on any machine."""
    for name, text in (
        ("token", "abc"),
        ("cards/c1", "ok\n"),
        ("links/usb-1", ""),
        ("pci/0000:3b:00.0/numa_node", "1\n"),
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for name in ("r1", "r2"):
        (tmp_path / "radios" / name).mkdir(parents=True)
    sticks(tmp_path / "sticks")
    interface(tmp_path / "net", "0000:3b:00.0", "eth0")
    lines = importlib.import_module("lines")
    return {
        "adapters": {"directory": tmp_path / "links", "monitor": ("tail", "-f", "/dev/null")},
        "boards": {"boards": ("b1", "b2"), "firmware": tmp_path / "firmware", "flasher": ("true",)},
        "cards": {"directory": tmp_path / "cards"},
        "cores": {"addresses": ("0000:3b:00.0",), "sysfs": tmp_path / "pci"},
        "interfaces": {"match": (Kind("net", attrs={"vendor": Test(("0x8086",))}),), "sysfs": f"{tmp_path}/net/sys"},
        "lines": {"lines": {"a": lines.Line("/dev/ttyS0"), "b": lines.Line("/dev/ttyS1")}},
        "radios": {"radios": ("r1", "r2"), "directory": tmp_path / "radios"},
        "sticks": {"match": (Match("usb", attr={"idVendor": Test(("0403",))}),), "sysfs": f"{tmp_path}/sticks/sys"},
        "seats": {"seats": ("blue", "red"), "directory": tmp_path},
    }


def interface(directory, address, name):
    function = f"/sys/devices/pci0000:3a/{address}"
    FakeTree(directory).write(f"""
        {function}/vendor = 0x8086
        {function}/numa_node = 1
        {function}/subsystem -> /sys/bus/pci
        {function}/net/{name}/subsystem -> /sys/class/net
        /sys/class/net/{name} -> {function}/net/{name}
        /sys/class/net/lo -> /sys/devices/virtual/net/lo
        /sys/devices/virtual/net/lo/subsystem -> /sys/class/net
    """)


def sticks(directory):
    for number in (1, 2):
        here = f"/sys/devices/usb1/1-{number}"
        FakeTree(directory).write(f"""
            {here}/idVendor = 0403
            {here}/idProduct = 6001
            {here}/serial = A{number}
            {here}/uevent = DEVNAME=bus/usb/001/00{number}
            /sys/bus/usb/devices/1-{number} -> {here}
        """)


@pytest.fixture
def make(options):
    """Makes the driver of an example, with other options than usual if they are given; closes it in the end."""
    made = []

    def make(name, recorder=None, **more):
        kind = importlib.import_module(name).dpgateway_driver()
        made.append(kind(kind.Options(**options[name] | more), (recorder or Recorder()).context()))
        return made[-1]

    yield make
    for driver in made:
        getattr(driver, "close", lambda: None)()


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_keeps_the_contract(name, options):
    kind = importlib.import_module(name).dpgateway_driver()
    check_driver(lambda context: kind(kind.Options(**options[name]), context))


def test_cards_are_as_their_monitor_says(make, tmp_path):
    driver = make("cards")
    for name, said in (("c2", "overheated"), ("c3", "")):
        (tmp_path / "cards" / name).write_text(said)
    (tmp_path / "cards/c4").mkdir()
    assert {device.id: device.health.reason for device in driver.devices()} == {
        "c1": None,
        "c2": "overheated",
        "c3": "its monitor says nothing",
        "c4": "its state can't be read: Is a directory",
    }
    (tmp_path / "cards/c2").write_text("ok")
    assert driver.devices()[1].health.ok
    with pytest.raises(FileNotFoundError):
        list(make("cards", directory=tmp_path / "none").devices())


def test_monitor_notices_adapters(make, tmp_path):
    recorder, fifo = Recorder(), tmp_path / "fifo"
    os.mkfifo(fifo)
    driver = make("adapters", recorder, monitor=("sh", "-c", f"read line < {fifo}; echo $line; exec sleep 60"))
    (tmp_path / "links/usb-2").touch()
    assert recorder.changes == 0
    fifo.write_text("add\n")
    assert recorder.until(lambda: recorder.changes == 1)
    assert [device.id for device in driver.devices()] == ["usb-1", "usb-2"]


def test_monitor_that_cannot_start(make):
    with pytest.raises(DriverError, match="no-such-program can't be started: No such file"):
        make("adapters", monitor=("no-such-program",))


def test_boards_that_cannot_be_flashed(make):
    driver = make("boards", flasher=("sh", "-c", "echo worn out >&2; false"))
    with pytest.raises(DriverError, match="b1 can't be flashed: worn out"):
        driver.prepare(driver.devices())
    with pytest.raises(DriverError, match="nowhere can't be started"):
        make("boards", flasher=("nowhere",)).prepare(driver.devices())


def test_each_error_of_seats(make, tmp_path):
    driver = make("seats")
    blue, red = driver.devices()
    assert driver.allocate([red]).env == {"LICENCE": "abc"}
    (tmp_path / "blue.revoked").touch()
    with pytest.raises(DeviceUnavailable, match="seat blue was revoked"):
        driver.allocate([blue])
    (tmp_path / "token").unlink()
    with pytest.raises(Busy, match="yet"):
        driver.allocate([red])
    (tmp_path / "token").mkdir()
    with pytest.raises(DriverError, match="Is a directory"):
        driver.allocate([red])


def test_numa_nodes_of_cores(make, tmp_path):
    driver = make("cores", addresses=("0000:3b:00.0", "0000:00:01.0"))
    near, gone = driver.devices()
    assert near.numa_nodes == (1,)
    assert gone.health.reason == "there is no such PCI function"
    (tmp_path / "pci/0000:3b:00.0/numa_node").write_text("-1\n")
    assert driver.devices()[0].numa_nodes == ()


def test_lines_tell_their_options(make):
    driver = make("lines", settle=timedelta(seconds=1))
    allocation = driver.allocate(driver.devices()[:1])
    assert allocation.env == {"BUS_SETTLE_MS": "1000", "BUS_a": "/dev/ttyS0@9600"}


def test_serial_numbers_of_sticks(make):
    driver = make("sticks")
    devices = driver.devices()
    assert [device.id for device in devices] == ["0403:6001:A1", "0403:6001:A2"]
    assert [node.host_path for node in driver.allocate(devices).device_nodes] == [
        "/dev/bus/usb/001/001",
        "/dev/bus/usb/001/002",
    ]


def test_interfaces_keep_their_ids(make, tmp_path):
    recorder = Recorder()
    driver = make("interfaces", recorder)
    interface(tmp_path / "net", "0000:3b:00.1", "eth1")
    first, second = driver.devices()
    assert (first.id, second.id, first.numa_nodes) == ("0000:3b:00.0", "0000:3b:00.1", (1,))
    assert first.attributes["vendor"] == "0x8086"
    assert first.hardware == ("net eth0",)
    assert driver.allocate([first, second]).env == {"INTERFACES": "eth0,eth1"}
    changes = recorder.changes
    FakeTree(tmp_path / "net").remove("/sys/devices/pci0000:3a/0000:3b:00.1/net")
    with pytest.raises(DeviceUnavailable, match="eth1 is gone"):
        driver.allocate([second])
    assert recorder.changes == changes + 1
    FakeTree(tmp_path / "net").remove("/sys/class/net/eth1")
    assert driver.devices() == [first]


def test_a_radio_is_unhealthy_until_it_can_be_reset(make, tmp_path):
    recorder = Recorder()
    driver = make("radios", recorder)
    (r1, _) = driver.devices()
    (tmp_path / "radios/r1/reset").mkdir()
    with pytest.raises(DriverError, match="r1 can't be reset: Is a directory"):
        driver.prepare([r1])
    assert driver.devices()[0].health.reason == "it can't be reset: Is a directory"
    (tmp_path / "radios/r1/reset").rmdir()
    driver.prepare([r1])
    assert driver.devices()[0].health.ok
    assert recorder.changes == 2


def test_the_configuration_is_checked_as_shown(place: Place, site):
    (block,) = PAGE.commands
    (result,) = place.run([f"export PYTHONPATH={site}; cd {site}; {block.text}"], "how-to")
    assert result.status == 2
    assert block.output
    check_output(block.output, result.output)


def test_quoted_errors_reach_pods(place: Place, site, tmp_path):
    """A seat that was revoked, and a board whose flashing takes longer than the deadline, and is joined."""
    quoted = re.findall(r"^ {4,}(resource .*|prepare\(\) of .*)$", PAGE.text, re.MULTILINE)
    late, revoked = quoted
    for name in ("token", "blue.revoked"):
        (tmp_path / name).touch()
    flasher = ["sh", "-c", f"cat {tmp_path}/go"]
    resources = [
        {"name": "example.com/seat", "driver": "seats", "options": {"seats": ["blue"], "directory": str(tmp_path)}},
        {
            "name": "example.com/board",
            "driver": "boards",
            "options": {"boards": ["b1"], "firmware": "/dev/null", "flasher": flasher},
            "timeouts": {"prepare": "200ms"},
        },
    ]
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"resources": resources}))
    script = f"""mkfifo {tmp_path}/go
export PYTHONPATH={site}
dpgateway run --config {config} --device-plugins-dir plugins 2> gateway.log &
dpgateway simulate --device-plugins-dir plugins --script /dev/stdin <<'END'
wait example.com/seat=1 example.com/board=1
reject p1 example.com/seat=1 because "{revoked}"
reject p2 example.com/board=1 because "{late}"
run sh -c "echo flash > {tmp_path}/go; until grep -q 'prepare() of b1 succeeded' gateway.log; do sleep 0.05; done"
restart-container p2 c
END
"""
    (result,) = place.run([script], "pods")
    assert result.status == 0, result.output
    assert "container started pod=p2 container=c env=BOARDS=b1" in result.output
