import logging
import os
import stat

import pytest
from dpgateway_chardev.driver import MOST_AWAY
from dpgateway_chardev.settings import Access

from dpgateway import Device, DeviceNode, DeviceUnavailable, DriverError
from tests.support.listed import reasons


def test_paths_are_listed_while_absent(dev):
    dev.node("ttyUSB1", 1)
    dev.node("ttyUSB0", 0)
    driver = dev.drive("ttyUSB*", "modem")
    expected = {"modem": "no such device node: /dev/modem", "ttyUSB0": None, "ttyUSB1": None}
    assert reasons(driver) == expected
    (dev.path / "ttyUSB0").unlink()
    dev.node("modem", 2)
    assert reasons(driver) == {"modem": None, "ttyUSB1": None}


def test_links_keep_their_own_names(dev):
    dev.node("ttyUSB0", 4)
    dev.link("serial/by-id/usb-FTDI_A1-if00-port0", "../../ttyUSB0")
    driver = dev.drive("serial/by-id/*")
    (device,) = driver.devices()
    assert device.id == "serial/by-id/usb-FTDI_A1-if00-port0"
    assert driver.allocate([device]).device_nodes == (
        DeviceNode("/dev/serial/by-id/usb-FTDI_A1-if00-port0", None, "rw"),
    )


def test_one_node_is_offered_once(dev, caplog):
    caplog.set_level(logging.INFO)
    dev.node("ttyUSB0", 4)
    dev.link("modem", "ttyUSB0")
    dev.link("gsm", "/dev/ttyUSB0")
    driver = dev.drive("ttyUSB*", "g*", "modem", "gsm")
    refused = "/dev/gsm is the same device as /dev/modem (char 240:4), which is offered already"
    assert reasons(driver) == {"modem": None, "gsm": refused}
    refused = "/dev/ttyUSB0 is the same device as /dev/modem (char 240:4), which is offered already"
    assert caplog.messages == [refused]


KERNEL, LINK = "ttyUSB0", "serial/by-id/usb-FTDI_A1-if00-port0"


@pytest.mark.parametrize("link", [LINK, "serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0", "v4l/by-new/x"])
def test_lasting_name_wins_in_any_order(dev, link, caplog):
    caplog.set_level(logging.INFO)
    dev.node(KERNEL, 4)
    dev.link(link, f"../../{KERNEL}")
    for paths in (("ttyUSB*", "*/by-*/*"), ("*/by-*/*", "ttyUSB*"), ("**",)):
        assert reasons(dev.drive(*paths)) == {link: None}
    refused = f"/dev/{KERNEL} is the same device as /dev/{link} (char 240:4), which is offered already"
    assert caplog.messages.count(refused) == 3


def test_lasting_name_wins_unless_spelled_out(dev):
    dev.node(KERNEL, 4)
    dev.link(LINK, f"../../{KERNEL}")
    for paths in ((KERNEL, "serial/by-id/*"), ("serial/by-id/*", KERNEL), ("ttyUSB*", LINK)):
        found = reasons(dev.drive(*paths))
        assert found.pop(LINK) is None
        assert all(str(reason).startswith(f"/dev/{KERNEL} is the same device as") for reason in found.values())
        assert list(found) == [path for path in paths if path == KERNEL]
    for paths in ((KERNEL, LINK), (LINK, KERNEL)):
        assert [path for path, reason in reasons(dev.drive(*paths)).items() if reason is None] == [paths[0]]


def test_operators_link_is_no_kernel_name(dev):
    """Whoever spells out a link, or makes the directory that a glob goes through, knows which device it is."""
    dev.node("bus/ttyUSB0", 4)
    dev.link(LINK, "../../bus/ttyUSB0")
    dev.link("modem", "bus/ttyUSB0")
    dev.link("modems", "bus")
    assert reasons(dev.drive("serial/by-id/*", "modem"))["modem"] is None
    assert reasons(dev.drive("modem*/*", "serial/by-id/*")) == {"modems/ttyUSB0": None}


def test_by_prefix_alone_is_not_lasting(dev):
    dev.node(KERNEL, 4)
    dev.link("by-me", KERNEL)
    dev.link("standby-0/x", f"../{KERNEL}")
    assert reasons(dev.drive("ttyUSB*", "*-*", "*/*")) == {KERNEL: None}


def test_unusable_lasting_name_hides_nothing(dev):
    dev.node(KERNEL, 4)
    dev.link("serial/by-id/usb::1", f"../../{KERNEL}")
    assert reasons(dev.drive("ttyUSB*", "serial/by-id/*")) == {KERNEL: None}


def test_later_lasting_name_wins(dev):
    """As with udev, which makes its links after the kernel has made the node."""
    dev.node(KERNEL, 4)
    driver = dev.drive("ttyUSB*", "serial/by-id/*")
    assert reasons(driver) == {KERNEL: None}
    dev.link(LINK, f"../../{KERNEL}")
    assert reasons(driver) == {LINK: None}


@pytest.mark.parametrize(("kind", "hardware"), [("char", "char 240:4"), ("block", "block 240:4")])
def test_each_name_has_its_hardware(dev, kind, hardware):
    dev.node("bus/4", 4, stat.S_IFCHR if kind == "char" else stat.S_IFBLK)
    dev.link("gps", "bus/4")
    dev.link("modem", "nothing")
    devices = {device.id: device for device in dev.drive("gps", "bus/4", "modem", type=kind).devices()}
    assert {id_: device.hardware for id_, device in devices.items()} == {
        "gps": (hardware,),
        "bus/4": (hardware,),
        "modem": None,
    }
    assert devices["gps"].attributes == {"path": "/dev/gps", "node": "/dev/bus/4", "number": "240:4"}
    assert devices["modem"].attributes == {"path": "/dev/modem"}


def test_logs_unofferable_matches_once(dev, caplog):
    caplog.set_level(logging.INFO)
    driver = dev.drive("ttyUSB*")
    for _ in range(2):
        (dev.path / "ttyUSB0").write_text("AT\n")
        assert reasons(driver) == reasons(driver) == {}
        (dev.path / "ttyUSB0").unlink()
        assert reasons(driver) == {}
    assert caplog.messages == ["expected a char device at /dev/ttyUSB0, found a regular file"] * 2


def test_sets_access_to_named_devices(dev, tmp_path):
    node, other = dev.node("bus/tty0", 0), dev.node("bus/tty1", 1)
    dev.link("modem", "bus/tty0")
    lock = tmp_path / "lock-tty1"
    lock.touch()
    access = (Access("{devnode}", owner=107, mode="0660"), Access("/lock-{name}", group=108))
    driver = dev.drive("bus/*", access=access, host=str(tmp_path))
    first, second = driver.devices()
    driver.allocate([second])
    assert (other.stat().st_uid, other.stat().st_mode & 0o777, lock.stat().st_gid) == (107, 0o660, 108)
    assert node.stat().st_uid == os.getuid()
    with pytest.raises(DeviceUnavailable, match=r"^bus/tty0: can't set owner, .* of /lock-tty0: .*No such file"):
        driver.allocate([first])
    driver = dev.drive("modem", access=access[:1])
    driver.allocate(driver.devices())
    assert node.stat().st_uid == 107  # the node behind the link


def test_leaves_out_unusable_names(dev, caplog):
    caplog.set_level(logging.INFO)
    dev.node("a::1", 1)
    dev.node(os.fsdecode(b"a\xff"), 2)
    dev.node("a b,c", 3)
    assert reasons(dev.drive("a*")) == {"a b,c": None}
    assert "device id 'a::1' ends in '::' and digits, which is how shares are named" in caplog.messages
    assert r"device id: 'a\udcff' is not valid Unicode text" in caplog.messages


def test_lists_unreadable_nodes_unhealthy(dev):
    dev.link("a", "a")
    assert reasons(dev.drive("*")) == {"a": "can't look at /dev/a: Too many levels of symbolic links"}


def test_one_odd_name_costs_the_others_nothing(dev):
    """A link to itself is what can't be looked at, and a name needn't be UTF-8."""
    dev.node("tty0")
    dev.link(os.fsdecode(b"tty\xff"), os.fsdecode(b"tty\xff"))
    dev.link(os.fsdecode(b"by-\xff"), ".")
    dev.link("tty1", os.fsdecode(b"by-\xff/tty9"))
    listed = {device.id: device.health.ok for device in dev.drive("tty*", "tty1").devices()}
    assert listed == {"tty1": False, "tty0": True}


def test_globs_follow_links_inside_dev(dev, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    dev.node("v4l/cam", 1)
    dev.link("video", "v4l")
    (tmp_path / "empty").mkdir()
    dev.link("host", tmp_path / "empty")
    driver = dev.drive("[hv]*/*", exclude=("/dev/v4l",))
    assert reasons(driver) == {"video/cam": None}
    assert caplog.messages == [f"/dev/host leads outside /dev, to {str(tmp_path / 'empty')!r}"]


def test_the_container_gets_what_the_options_say(dev):
    dev.node("snd/pcm0", 1)
    dev.node("snd/pcm1", 2)
    driver = dev.drive("snd/*", permissions="mr", container_path="/audio/{name}")
    assert driver.allocate(driver.devices()).device_nodes == (
        DeviceNode("/dev/snd/pcm0", "/audio/pcm0", "mr"),
        DeviceNode("/dev/snd/pcm1", "/audio/pcm1", "mr"),
    )
    driver = dev.drive("snd/*", container_path="/in/{id}")
    assert driver.allocate(driver.devices()[:1]).device_nodes[0].container_path == "/in/snd/pcm0"


def test_one_container_path_is_for_one_device(dev):
    dev.node("ttyUSB0", 0)
    dev.node("ttyUSB1", 1)
    driver = dev.drive("ttyUSB*", container_path="/dev/modem")
    devices = driver.devices()
    assert driver.allocate(devices[1:]).device_nodes == (DeviceNode("/dev/ttyUSB1", "/dev/modem", "rw"),)
    with pytest.raises(DriverError, match="/dev/ttyUSB0 and /dev/ttyUSB1 can't both be /dev/modem in one container"):
        driver.allocate(devices)


def test_refuses_a_vanished_node(dev):
    dev.node("ttyUSB0", 0)
    driver = dev.drive("ttyUSB0")
    devices = driver.devices()
    driver.close()  # so that only allocate can have noticed
    told = dev.recorder.changes
    (dev.path / "ttyUSB0").unlink()
    with pytest.raises(DeviceUnavailable, match=r"^ttyUSB0: no such device node: /dev/ttyUSB0$"):
        driver.allocate(devices)
    assert dev.recorder.changes == told + 1


def test_refuses_a_replaced_node(dev):
    dev.node("ttyUSB0", 0)
    driver = dev.drive("ttyUSB0")
    devices = driver.devices()
    driver.close()
    told = dev.recorder.changes
    (dev.path / "ttyUSB0").unlink()
    dev.node("ttyUSB0", 9)
    with pytest.raises(DeviceUnavailable, match=r"/dev/ttyUSB0 is char 240:9 now, it was listed as char 240:0$"):
        driver.allocate(devices)
    assert dev.recorder.changes == told + 1
    (device,) = driver.devices()
    assert device.health.ok
    assert driver.allocate([device]).device_nodes
    said = "/dev/ttyUSB0 is char 240:9 now, it was char 240:0: containers that have it keep the old device"
    assert any(message.startswith(said) for message in dev.recorder.messages)


def test_logs_a_replaced_node(dev):
    dev.node("ttyUSB0", 0)
    dev.node("ttyUSB1", 1)
    driver = dev.drive("ttyUSB*")
    driver.devices()
    for path in dev.path.iterdir():
        path.unlink()
    assert not driver.devices()
    dev.node("ttyUSB0", 9)
    dev.node("ttyUSB1", 1)
    driver.devices()
    driver.devices()
    (told,) = (message for message in dev.recorder.messages if "it was" in message)
    assert told.startswith("/dev/ttyUSB0 is char 240:9 now, it was char 240:0: containers that have it keep the old")


def test_forgets_the_oldest_absent_nodes(dev):
    driver = dev.drive("*")
    for number in range(MOST_AWAY + 1):
        dev.node(str(number), number)
    driver.devices()
    for path in dev.path.iterdir():
        path.unlink()
    assert not driver.devices()
    dev.node("0", 5000)
    driver.devices()
    assert not any("it was" in message for message in dev.recorder.messages)


def test_refuses_an_unlisted_device(dev):
    dev.node("ttyUSB0", 0)
    with pytest.raises(DeviceUnavailable, match="it was listed as None"):
        dev.drive("ttyUSB0").allocate([Device("ttyUSB0")])


def test_a_thousand_nodes_behind_links(dev):
    for number in range(1000):
        dev.node(f"tty{number}", number)
        dev.link(f"by-id/{number}", f"../tty{number}")
    driver = dev.drive("by-id/*")
    devices = driver.devices()
    assert len(devices) == 1000
    assert all(device.health.ok for device in devices)
    assert len(driver.allocate(devices).device_nodes) == 1000
