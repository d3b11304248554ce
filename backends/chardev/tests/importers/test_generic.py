"""What generic-device-plugin gives is in its deviceplugin/path.go and usb.go; here it is written down by hand."""

from functools import partial

import pytest
from dpgateway_chardev.importers import RUNNING

from dpgateway import DeviceNode, Mount
from dpgateway.config import Shares

PLUGIN = "generic-device-plugin"
DAEMON_SET = """\
apiVersion: apps/v1
kind: DaemonSet
spec:
  template:
    spec:
      containers:
      - image: plugin
        args:
        - --domain
        - example.com
        - --device
        - |
          name: serial
          groups:
            - paths:
                - path: /dev/ttyUSB*
            - paths:
                - path: /dev/ttyACM[^1]
        - --device
        - |
          name: fuse
          groups:
            - count: 10
              paths:
                - path: /dev/fuse
                  permissions: rw
                  mountPath: /dev/inside/
"""


@pytest.fixture
def imported(importing):
    return partial(importing, PLUGIN)


def test_a_daemon_set(imported, tree):
    tree.write("""
        c /dev/ttyUSB0 240:0
        c /dev/ttyUSB1 240:1
        c /dev/ttyACM0 240:2
        c /dev/ttyACM1 240:3
        c /dev/fuse 10:229
    """)
    written = imported(DAEMON_SET)
    assert written.nodes("example.com/serial") == {
        name: [(f"/dev/{name}", f"/dev/{name}", "mrw")] for name in ("ttyACM0", "ttyUSB0", "ttyUSB1")
    }
    assert written.nodes("example.com/fuse") == {"fuse": [("/dev/fuse", "/dev/inside/fuse", "rw")]}
    ids = "{sha1:{share}/dev/{id}}"
    assert written.resources["example.com/serial"].shares == Shares(1, ids=ids)
    assert written.resources["example.com/fuse"].shares == Shares(10, ids=ids)
    assert (written.code, written.not_kept) == (0, [])


def test_comments_say_where_it_comes_from(imported):
    text = imported(DAEMON_SET).text
    assert text.startswith("# What generic-device-plugin served, made from theirs by dpgateway import.\n")
    assert "  # From theirs:21.\n  - name: example.com/fuse\n    driver: chardev\n" in text


@pytest.mark.parametrize(
    "text",
    [
        """x --device='{"name": "video", "groups": [{"paths": [{"path": "/dev/video0"}]}]}' --domain=example.com""",
        "- --domain=example.com\n- --device\n- 'name: video\n\n  groups: [{paths: [{path: /dev/video0}]}]'",
        """plugin \\
          --domain example.com \\
          --device '{name: video, groups: [{paths: [{path: /dev/video0}]}]}'""",
        "domain: example.com\ndevices:\n- name: video\n  groups:\n  - paths: [{path: /dev/video0}]\n",
        """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  data:
    config.yaml: |
      domain: ignored.example
      device:
      - {name: video, groups: [{paths: [{path: /dev/video0}]}]}
---
apiVersion: apps/v1
kind: DaemonSet
spec: {template: {spec: {containers: [{args: ["--domain=example.com", "--log-level", "debug"]}]}}}
""",
    ],
)
def test_every_form_in_which_people_have_it(imported, text):
    written = imported(text)
    assert written.plain("example.com/video") == {"paths": ("/dev/video0",), "permissions": "mrw"}


def test_a_flag_outweighs_the_file(imported):
    config_map = "apiVersion: v1\nkind: ConfigMap\ndata: {c: 'devices: [{name: cc, groups: []}]'}\n---\n"
    assert set(imported(config_map + DAEMON_SET).resources) == {"example.com/serial", "example.com/fuse"}


def test_a_name_that_no_kubelet_takes(importing):
    (told,) = importing.refused(PLUGIN, DAEMON_SET.replace("example.com", "kubernetes.io").replace("fuse", "kvm"))[:1]
    assert told.startswith('what was made of theirs: resources[0].name: found "kubernetes.io/serial", expected ')


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
    assert written.nodes("squat.ai/ch340") == {"ch340": [usb("/dev/bus/usb/001/004"), usb("/dev/bus/usb/001/005")]}
    assert len(written.not_kept) == 1


def test_usb_devices_of_several_groups(imported, tree):
    stick(tree, "1-1", 4)
    stick(tree, "1-2", 5, "5523")
    both = "groups: [{usb: [{vendor: 1A86, product: '7523'}]}, {usb: [{vendor: 1A86, product: '5523'}]}]"
    nodes = imported(f"devices: [{{name: ch, {both}}}]").nodes("squat.ai/ch")
    assert nodes == {"1a86:7523": [usb("/dev/bus/usb/001/004")], "1a86:5523": [usb("/dev/bus/usb/001/005")]}


def test_usb_devices_by_their_serial_numbers(imported, tree):
    stick(tree, "1-1", 4, serial="A1")
    stick(tree, "1-2", 5, serial="B2")
    stick(tree, "1-3", 6, serial="C3")
    sticks = ", ".join(f"{{usb: [{{vendor: 1a86, product: 7523, serial: {serial}}}]}}" for serial in ("A1", "C3"))
    nodes = imported(f"--device='{{name: ch, groups: [{sticks}]}}'").nodes("squat.ai/ch")
    assert nodes == {
        "1a86:7523:A1": [usb("/dev/bus/usb/001/004")],
        "1a86:7523:C3": [usb("/dev/bus/usb/001/006")],
    }


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
    one, two = (written.given("squat.ai/capture")[f"0000:00:1f.{card}"] for card in range(2))
    control, pcm = "/dev/snd/controlC0", "/dev/snd/pcmC0D0c"
    assert one.device_nodes == (DeviceNode(control, control, "mrw"), DeviceNode(pcm, pcm, "mrw"))
    assert two.device_nodes == (DeviceNode("/dev/snd/controlC1", control, "mrw"),)
    assert two.mounts == (Mount("/opt/card1", "/opt/card1"),)


@pytest.mark.usefixtures("sound")
def test_all_that_is_in_a_directory(imported):
    written = imported(CAPTURE)
    names = ("controlC0", "pcmC0D0c", "controlC1", "pcmC1D0c")
    assert written.nodes("squat.ai/audio") == {"snd": [(f"/dev/snd/{one}", f"/dev/snd/{one}", "mrw") for one in names]}
    assert written.resources["squat.ai/audio"].shares.count == 10


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
    assert set(written.resources) == {"squat.ai/audio"}
    lost = [what for _, _, name, what in written.lost if name == "squat.ai/capture"]
    assert len(lost) == 2
    assert all(what.startswith("the group of /dev/snd/") for what in lost)


def test_what_is_not_kept(imported):
    written = imported("""\
devices:
- name: several
  groups:
  - paths: [{path: /dev/a, permissions: r, mountPath: /dev/x}]
    count: 3
  - paths: [{path: /dev/b}]
    count: 2
  - paths: [{path: /dev/c}, {path: /dev/d}]
  - paths: [{path: /dev/snd/}]
  - paths: [{path: /opt/file, type: Mount}]
  - paths: [{path: /sys/kernel/node}]
- name: mixed
  groups:
  - paths: [{path: /dev/a}]
  - usb: [{vendor: "1a86", product: "7523"}]
- name: only-mounts
  groups:
  - paths: [{path: /opt/file, type: Mount}]
- name: sticks
  groups:
  - usb: [{vendor: "1a86", product: "7523", serial: A1}]
  - usb: [{vendor: "1a86", product: "7523"}]
- name: bus
  groups:
  - paths: [{path: /dev/bus/usb}]
""")
    assert written.lost == [
        (8, "devices[0].groups[2]", "squat.ai/several", "the group of /dev/c"),
        (9, "devices[0].groups[3]", "squat.ai/several", "the directory /dev/snd/"),
        (10, "devices[0].groups[4]", "squat.ai/several", "the mount /opt/file"),
        (11, "devices[0].groups[5]", "squat.ai/several", "/sys/kernel/node"),
        (6, "devices[0].groups[1]", "squat.ai/several", "the group of /dev/b"),
        (3, "devices[0].groups", "squat.ai/several", "different counts"),
        (14, "devices[1].groups[0]", "squat.ai/mixed", "paths"),
        (12, "devices[1]", "squat.ai/mixed", "the ids"),
        (18, "devices[2].groups[0]", "squat.ai/only-mounts", "the mount /opt/file"),
        (20, "devices[3].groups", "squat.ai/sticks", "groups of USB devices"),
        (25, "devices[4].groups[0]", "squat.ai/bus", "the directory /dev/bus/usb"),
    ]
    assert written.plain("squat.ai/several") == {
        "paths": ("/dev/a",),
        "permissions": "r",
        "container_path": "/dev/x",
    }
    assert written.resources["squat.ai/several"].shares.count == 1  # what the third group has
    assert set(written.resources) == {"squat.ai/several", "squat.ai/mixed"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "- --domain\n- 1\n",
            "theirs: found nothing of it, expected --device flags, or a file with `devices`",
        ),
        (
            DAEMON_SET.replace("path: /dev/fuse", "paht: /dev/fuse"),
            (
                "theirs:25: groups[0].paths[0].paht: found an unknown key, "
                "expected one of path, mountPath, permissions, readOnly, type, limit, optional; did you mean path?"
            ),
        ),
        ("x --device 'a\n\n", "theirs:3: found a quote without its end, expected a command line"),
        (
            "devices:\n- name: ch\n  groups:\n  - usb: [{vendor: 1209, product: '7'}]\n",
            'theirs:4: devices[0].groups[0].usb[0].vendor: found 1209, expected a string; put it in quotes: "1209"',
        ),
        (
            "plugin --device '{name: ch, groups: [{usb: [{vendor: xyz, product: 1}]}]}'",
            "theirs:1: groups[0].usb[0].vendor: found 'xyz', expected at most four hexadecimal digits",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(importing, text, told):
    assert any(line.startswith(told) for line in importing.refused(PLUGIN, text))
