"""Devices of generic-device-plugin that the driver finds by a match, in a tree of files."""

import pytest
from dpgateway_chardev.importers import RUNNING

from dpgateway import DeviceNode, Mount

PLUGIN = "generic-device-plugin"


def test_usb_devices_as_microshift_writes_them(imported, tree):
    stick(tree, "1-1", 4)
    usbs = "{vendor: '0x1a86', product: 0x7523, serial: ''}"
    written = imported(f"genericDevicePlugin: {{devices: [{{name: ch, groups: [{{usbs: [{usbs}]}}]}}]}}")
    assert written.nodes("device.microshift.io/ch") == {"ch": [usb("/dev/bus/usb/001/004")]}


def stick(tree, name, number, product="7523", serial=None):
    bus, here = 1, f"/sys/devices/pci0000:00/0000:00:14.0/usb1/{name}"
    tree.write(f"""
        {here}/subsystem -> /sys/bus/usb
        {here}/idVendor = 1a86
        {here}/idProduct = {product}
        {here}/busnum = {bus}
        {here}/devnum = {number}
        {here}/dev = 189:{number}
        {here}/uevent = DEVNAME=bus/usb/{bus:03}/{number:03}
        /sys/bus/usb/devices/{name} -> {here}
        c /dev/bus/usb/{bus:03}/{number:03} 189:{number}
    """)
    if serial:
        tree.write(f"{here}/serial = {serial}")


def usb(path):
    return (path, path, "rw")


def test_usb_group_is_one_device(imported, tree):
    stick(tree, "1-1", 4)
    stick(tree, "1-2", 5)
    stick(tree, "1-3", 6, "5523")
    written = imported("""--device='{"name": "ch340", "groups": [{"usb": [{"vendor": 1a86, "product": 7523}]}]}'""")
    assert written.nodes("devic.es/ch340") == {"ch340": [usb("/dev/bus/usb/001/004"), usb("/dev/bus/usb/001/005")]}
    assert len(written.not_kept) == 1


def test_usb_devices_of_several_groups(imported, tree):
    stick(tree, "1-1", 4)
    stick(tree, "1-2", 5, "5523")
    both = "groups: [{usb: [{vendor: 1A86, product: '7523'}]}, {usb: [{vendor: 1A86, product: '5523'}]}]"
    nodes = imported(f"devices: [{{name: ch, {both}}}]").nodes("devic.es/ch")
    assert nodes == {"1a86:7523": [usb("/dev/bus/usb/001/004")], "1a86:5523": [usb("/dev/bus/usb/001/005")]}


def test_usb_devices_by_their_serial_numbers(imported, tree):
    stick(tree, "1-1", 4, serial="A1")
    stick(tree, "1-2", 5, serial="B2")
    stick(tree, "1-3", 6, serial="C3")
    sticks = ", ".join(f"{{usb: [{{vendor: 1a86, product: 7523, serial: {serial}}}]}}" for serial in ("A1", "C3"))
    nodes = imported(f"--device='{{name: ch, groups: [{sticks}]}}'").nodes("devic.es/ch")
    assert nodes == {"1a86:7523:A1": [usb("/dev/bus/usb/001/004")], "1a86:7523:C3": [usb("/dev/bus/usb/001/006")]}


CAPTURE = """\
- --device
- |
  name: audio
  groups:
    - count: 10
      paths:
        - path: /dev/snd
- --device
- |
  name: capture
  groups:
    - paths:
        - path: /dev/snd/controlC0
        - {path: /dev/snd/pcmC0D0c, optional: true}
        - {path: /opt/card0, type: Mount, readOnly: true}
    - paths:
        - path: /dev/snd/controlC1
          mountPath: /dev/snd/controlC0
        - {path: /dev/snd/pcmC1D0c, optional: true, mountPath: /dev/snd/pcmC0D0c}
        - {path: /opt/card1, type: Mount, readOnly: true}
"""


@pytest.fixture
def sound(tree):
    for card in range(2):
        for name, minor in ((f"controlC{card}", 32 * card), (f"pcmC{card}D0c", 32 * card + 24)):
            here = f"/sys/devices/pci0000:00/0000:00:1f.{card}/sound/card{card}/{name}"
            tree.write(f"""
                {here}/subsystem -> /sys/class/sound
                {here}/dev = 116:{minor}
                {here}/uevent = DEVNAME=snd/{name}
                /sys/devices/pci0000:00/0000:00:1f.{card}/subsystem -> /sys/bus/pci
                /sys/class/sound/{name} -> {here}
                c /dev/snd/{name} 116:{minor}
            """)


@pytest.mark.usefixtures("sound")
def test_paths_that_belong_together(imported, tree):
    tree.remove("/dev/snd/pcmC1D0c")
    tree.write("/opt/card0/\n/opt/card1/")
    written = imported(CAPTURE)
    assert {(one["what"], one["why"].endswith(RUNNING)) for one in written.not_kept} == {("the ids", True)}
    one, two = (written.given("devic.es/capture")[f"0000:00:1f.{card}"] for card in range(2))
    control, pcm = "/dev/snd/controlC0", "/dev/snd/pcmC0D0c"
    assert one.device_nodes == (DeviceNode(control, control, "mrw"), DeviceNode(pcm, pcm, "mrw"))
    assert two.device_nodes == (DeviceNode("/dev/snd/controlC1", control, "mrw"),)
    assert two.mounts == (Mount("/opt/card1", "/opt/card1"),)


@pytest.mark.usefixtures("sound")
def test_all_that_is_in_a_directory(imported):
    written = imported(CAPTURE)
    names = ("controlC0", "pcmC0D0c", "controlC1", "pcmC1D0c")
    assert written.nodes("devic.es/audio") == {"snd": [(f"/dev/snd/{one}", f"/dev/snd/{one}", "mrw") for one in names]}
    assert written.resources["devic.es/audio"].shares.count == 10


@pytest.mark.parametrize(
    "instead",
    [
        CAPTURE.replace("pcmC1D0c, opt", "pcmC1D2c, opt"),
        CAPTURE.replace("/dev/snd/pcmC1D0c", "/dev/snd/pcm*"),
        CAPTURE.replace("/opt/card1, type: Mount, ", "/dev/card1, "),
        CAPTURE.replace("controlC", "by-id/C"),
        CAPTURE.replace("C0\n", "C0\n          optional: true\n", 1).replace("C1\n", "C1\n          optional: true\n"),
    ],
)
def test_groups_that_are_not_alike(imported, instead):
    written = imported(instead)
    assert set(written.resources) == {"devic.es/audio"}
    lost = [what for _, _, name, what in written.lost if name == "devic.es/capture"]
    assert len(lost) == 2
    assert all(what.startswith("the group of /dev/snd/") for what in lost)


def adapter(tree, number, serial, port):
    """A serial adapter with udev's entry and link, as one port of two."""
    usb = f"/sys/devices/pci0000:00/usb1/1-{number}/1-{number}:1.0/ttyUSB{number}"
    tree.write(f"""
        {usb}/port_number = {port}
        {usb}/subsystem -> /sys/bus/usb-serial
        {usb}/tty/ttyUSB{number}/subsystem -> /sys/class/tty
        {usb}/tty/ttyUSB{number}/dev = 188:{number}
        {usb}/tty/ttyUSB{number}/uevent = MAJOR=188\\nMINOR={number}\\nDEVNAME=ttyUSB{number}
        /sys/class/tty/ttyUSB{number} -> {usb}/tty/ttyUSB{number}
        c /dev/ttyUSB{number} 188:{number}
        /dev/serial/by-id/usb-{serial}-if00-port{port} -> /dev/ttyUSB{number}
    """)
    entry = tree.at(f"/run/udev/data/c188:{number}")
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_text(f"S:serial/by-id/usb-{serial}-if00-port{port}\n")


def test_a_group_of_links(imported, tree):
    """udev says whose links they are; the id is what the plugin makes of the paths."""
    for number, serial, port in ((0, "FTDI_A-1", 0), (1, "FTDI_A-1", 1), (2, "FTDI_B", 0)):
        adapter(tree, number, serial, port)
    links = [f"/dev/serial/by-id/usb-FTDI_{name}-if00-port{port}" for name, port in (("A-1", 1), ("B", 0))]
    text = "devices: [{name: pair, groups: [{paths: [{path: %s}, {path: %s, mountPath: /dev/b}]}]}]"
    written = imported(text % tuple(links))
    assert (written.code, written.lost) == (0, [])
    expected = [(links[0], links[0], "mrw"), (links[1], "/dev/b", "mrw")]
    assert written.nodes("devic.es/pair") == {"".join(links).removeprefix("/dev/"): expected}
    alone = text.replace("{path: %s, mountPath: /dev/b}]", "{path: /dev/a}]}, {paths: [{path: %s}]")
    node(tree, "a", "10:99")
    assert set(imported(alone % tuple(links)).nodes("devic.es/pair")) == {"a", "ttyUSB2"}


def linked(tree, name, number, link, subsystem):
    """A node with a link of udev's."""
    kind = "b" if subsystem == "block" else "c"
    node(tree, name, number, kind, subsystem)
    major, minor = number.split(":")
    here = f"/sys/devices/virtual/{subsystem}/{name.rpartition('/')[2]}"
    tree.write(f"""
        {here}/uevent = MAJOR={major}\\nMINOR={minor}\\nDEVNAME={name}
        /dev/{link} -> /dev/{name}
        /run/udev/data/{kind}{number} = S:{link}
    """)


@pytest.mark.parametrize(
    ("link", "name", "subsystem"),
    [
        ("serial/by-path/pci-1-usb-0:1:1.0-port", "ttyUSB", "tty"),
        ("v4l/by-id/usb-Acme_Cam_A1-video-index", "video", "video4linux"),
        ("dri/by-path/pci-0000:00:0.0-card", "dri/card", "drm"),
        ("input/by-id/usb-Acme_Keyboard-event-kbd", "input/event", "input"),
        ("snd/by-path/pci-0000:00:1f.", "snd/controlC", "sound"),
        ("disk/by-id/ata-Acme_S3Z8N", "sd", "block"),
        ("mapper/vg-data", "dm-", "block"),
    ],
)
def test_groups_of_any_links(imported, tree, link, name, subsystem):
    """A twin with another link is no device of the group."""
    for number in range(3):
        linked(tree, f"{name}{number}", f"90:{number}", f"{link}{number}", subsystem)
    pair = f"{{path: '/dev/{link}0'}}, {{path: '/dev/{link}2', mountPath: /dev/two}}"
    written = imported(of(f"[{{paths: [{pair}]}}]"))
    (given,) = written.nodes("a.b/it").values()
    assert given == [(f"/dev/{link}0", f"/dev/{link}0", "mrw"), (f"/dev/{link}2", "/dev/two", "mrw")]
    assert (written.code, written.not_kept) == (0, [])


def test_device_of_optional_links(imported, tree):
    linked(tree, "sdb", "8:16", "disk/by-id/ata-B", "block")
    optional = ", ".join(f"{{path: /dev/disk/by-id/ata-{one}, optional: true}}" for one in "AB")
    written = imported(of(f"[{{paths: [{optional}]}}]"))
    assert written.nodes("a.b/it") == {"it": [given("disk/by-id/ata-B")]}


def test_links_with_a_node_that_all_share(imported, tree):
    for number, name in enumerate("ab"):
        linked(tree, f"input/event{number}", f"13:{64 + number}", f"input/by-id/usb-{name}-event-kbd", "input")
    linked(tree, "input/event2", "13:66", "input/by-id/usb-a-event-mouse", "input")
    node(tree, "uinput", "10:223")
    paths = "{path: /dev/input/by-id/*-event-kbd}, {path: /dev/uinput, limit: 9}"
    written = imported(of(f"[{{paths: [{paths}]}}]"))
    assert written.nodes("a.b/it") == {
        f"input/by-id/usb-{name}-event-kbd/dev/uinput": [given(f"input/by-id/usb-{name}-event-kbd"), given("uinput")]
        for name in "ab"
    }
    assert written.code == 0  # the ids stay


def node(tree, name, number, kind="c", subsystem="misc"):
    here = f"/sys/devices/virtual/{subsystem}/{name.rpartition('/')[2]}"
    tree.write(f"""
        {here}/subsystem -> /sys/class/{subsystem}
        {here}/dev = {number}
        {here}/uevent = DEVNAME={name}
        /sys/class/{subsystem}/{name.rpartition("/")[2]} -> {here}
        {kind} /dev/{name} {number}
    """)


def given(name, permissions="mrw"):
    return (f"/dev/{name}", f"/dev/{name}", permissions)


def of(groups):
    return f"domain: a.b\ndevices: [{{name: it, groups: {groups}}}]"


def test_directory_with_another_node(imported, tree):
    node(tree, "input/event0", "13:64", subsystem="input")
    node(tree, "uinput", "10:223")
    written = imported(of("[{count: 10, paths: [{path: /dev/input}, {path: /dev/uinput}]}]"))
    assert written.nodes("a.b/it") == {"input/dev/uinput": [given("input/event0"), given("uinput")]}
    assert written.code == 0  # the ids stay


@pytest.mark.parametrize("path", ["/dev/dvb", "/dev/dvb/adapter0", "/dev/dvb/"])
def test_directory_in_a_directory(imported, tree, path):
    node(tree, "dvb/adapter0/frontend0", "212:0", subsystem="dvb")
    assert imported(of(f"[{{paths: [{{path: {path}}}]}}]")).nodes("a.b/it") == {
        path.removeprefix("/dev/").rstrip("/"): [given("dvb/adapter0/frontend0")]
    }


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        ("block", ("/dev/sda", "/dev/nbd*", "/dev/nvme0n1", "/dev/mapper/vg-data")),
        ("char", ("/dev/sg0", "/dev/nvme0", "/dev/loop-control", "/dev/mapper/control", "/dev/random")),
    ],
)
def test_types_of_nodes(imported, kind, paths):
    for path in paths:
        assert imported(of(f"[{{paths: [{{path: '{path}'}}]}}]")).resources["a.b/it"].options.type == kind


def test_optional_first_path(imported, tree):
    node(tree, "ttyA0", "240:0", subsystem="tty")
    node(tree, "video7", "81:7", subsystem="video4linux")
    written = imported(of("[{paths: [{path: /dev/ttyA0, optional: true}, {path: /dev/video7}]}]"))
    assert written.nodes("a.b/it") == {"video7": [given("ttyA0"), given("video7")]}
    tree.remove("/dev/ttyA0")
    assert written.nodes("a.b/it") == {"video7": [given("video7")]}


def test_device_of_optional_paths(imported, tree):
    node(tree, "ttyA1", "240:1", subsystem="tty")
    written = imported(of("[{paths: [{path: /dev/ttyA0, optional: true}, {path: /dev/ttyA1, optional: true}]}]"))
    assert written.nodes("a.b/it") == {"it": [given("ttyA1")]}
    node(tree, "ttyA0", "240:0", subsystem="tty")
    assert written.nodes("a.b/it") == {"it": [given("ttyA0"), given("ttyA1")]}


def test_disks_and_char_devices(imported, tree):
    node(tree, "sda", "8:0", kind="b", subsystem="block")
    node(tree, "nvme0", "241:0", subsystem="nvme")
    together = imported(of("[{paths: [{path: /dev/sda, optional: true}, {path: /dev/nvme0, optional: true}]}]"))
    assert together.nodes("a.b/it") == {"it": [given("sda"), given("nvme0")]}
    alone = imported(of("[{paths: [{path: /dev/sda}]}, {paths: [{path: '/dev/nvme[0-9]'}]}]"))
    assert alone.nodes("a.b/it") == {"sda": [given("sda")], "nvme0": [given("nvme0")]}
    assert alone.code == 0


def test_groups_with_nothing_in_common(imported, tree):
    for name, number in (("ttyA0", "240:0"), ("ttyA5", "240:5"), ("video1", "81:1"), ("video2", "81:2")):
        node(tree, name, number)
    groups = "[{paths: [{path: /dev/ttyA0}, {path: /dev/video2}]}, {paths: [{path: /dev/ttyA5}, {path: /dev/video1}]}]"
    written = imported(of(groups))
    assert written.nodes("a.b/it") == {
        "ttyA0": [given("ttyA0"), given("video2")],
        "ttyA5": [given("ttyA5"), given("video1")],
    }
    assert [one["what"] for one in written.not_kept] == ["the ids"]


def test_pattern_with_a_node_that_all_share(imported, tree):
    for name, number in (("video1", "81:1"), ("video2", "81:2"), ("media", "82:0")):
        node(tree, name, number)
    written = imported(of("[{paths: [{path: '/dev/video*'}, {path: /dev/media, limit: 9}]}]"))
    assert written.nodes("a.b/it") == {
        f"video{number}/dev/media": [given(f"video{number}"), given("media")] for number in (1, 2)
    }
    assert written.code == 0


def test_patterns_that_are_combined(imported, tree):
    """The first matches of all patterns are a device, then the second ones. Here they stay together."""
    for number in (0, 1):
        node(tree, f"tpm{number}", f"10:{224 + number}", subsystem="tpm")
        node(tree, f"tpmrm{number}", f"253:{number}", subsystem="tpmrm")
    linked(tree, "ttyACM0", "166:0", "serial/by-id/usb-Acme-if00", "tty")
    patterns = "{path: /dev/tpm?}, {path: '/dev/tpmrm[^9]', mountPath: /dev/in/, permissions: r}"
    written = imported(of(f"[{{count: 3, paths: [{patterns}]}}]"))
    assert sorted(written.nodes("a.b/it").values()) == [
        [given(f"tpm{number}"), (f"/dev/tpmrm{number}", f"/dev/in/tpmrm{number}", "r")] for number in (0, 1)
    ]
    assert [one["what"] for one in written.not_kept] == ["the order of matches", "the ids"]
    assert written.resources["a.b/it"].shares.count == 3
    one = imported(of("[{paths: [{path: /dev/serial/by-id/usb-*}, {path: /dev/tpm1}]}]"))
    assert list(one.nodes("a.b/it").values()) == [[given("serial/by-id/usb-Acme-if00"), given("tpm1")]]


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ("[{paths: [{path: '/dev/a*'}, {path: '/dev/b*', limit: 2}]}]", "combined in the order of their names"),
        ("[{paths: [{path: '/dev/a*'}, {path: /dev/b, optional: true}]}]", "a path joins as many matches"),
        ("[{paths: [{path: /dev/serial/by-id}]}]", "it contains links"),
        ("[{paths: [{path: /dev/a, optional: true}, {path: /opt/a, type: Mount}]}]", "by a node that isn't optional"),
    ],
)
def test_true_reasons(imported, groups, why):
    written = imported(of(groups))
    assert written.resources == {}
    assert why in written.not_kept[0]["why"]
