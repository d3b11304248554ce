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
    written = imported(config_map + DAEMON_SET)
    assert set(written.resources) == {"example.com/serial", "example.com/fuse"}
    assert [(one["what"], one["why"]) for one in written.not_kept] == [("cc", "a --device flag outweighs the file")]


VIDEO = "{name: video, groups: [{paths: [{path: /dev/video0}]}]}"


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        # a HelmRelease of a chart that takes a container, with flags
        (
            f"""
kind: HelmRelease
spec:
  values:
    controllers:
      plugin:
        containers:
          app:
            image: {{repository: ghcr.io/squat/generic-device-plugin, tag: "0.1.0@sha256:00"}}
            args: [--device, "{VIDEO}"]
""",
            "squat.ai",
        ),
        # the same, with a file
        (
            f"""
kind: HelmRelease
spec:
  values:
    image: {{repository: squat/generic-device-plugin, tag: v0.2.1}}
    configMaps: {{config: {{data: {{config.yaml: "devices: [{VIDEO}]"}}}}}}
""",
            "devic.es",
        ),
        # a chart's values, whose own key has the file
        (f"config:\n  enabled: true\n  data: |\n    domain: example.org\n    devices: [{VIDEO}]\n", "example.org"),
        # patches of a Kustomization, as a strategic merge and as operations
        (
            f"""
kind: Kustomization
patches:
- patch: |-
    kind: DaemonSet
    spec: {{template: {{spec: {{containers: [{{name: a, args: [--domain, a.example, --device, "{VIDEO}"]}}]}}}}}}
""",
            "a.example",
        ),
        (
            f"""
kind: Kustomization
patches:
- patch: |
    - op: replace
      path: /spec/template/spec/containers/0/args
      value: [--domain=b.example, "--device={VIDEO}"]
""",
            "b.example",
        ),
        (
            f"""
kind: Kustomization
images: [{{name: squat/generic-device-plugin, newTag: 0.1.0}}]
patches:
- patch: |
    - {{op: add, path: /spec/template/spec/containers/0/args/-, value: --device}}
    - {{op: add, path: /spec/template/spec/containers/0/args/-, value: '{VIDEO}'}}
""",
            "squat.ai",
        ),
        # MicroShift has it built in
        (f"apiServer: {{}}\ngenericDevicePlugin:\n  status: Enabled\n  devices: [{VIDEO}]\n", "device.microshift.io"),
    ],
)
def test_what_wraps_it(imported, text, domain):
    written = imported(text)
    assert written.plain(f"{domain}/video") == {"paths": ("/dev/video0",), "permissions": "mrw"}
    assert (written.code, written.not_kept) == (0, [])


def test_default_domain_of_an_unknown_version(imported):
    text = imported(f"devices: [{VIDEO}]").text
    assert "  # The default domain depends on the plugin's version" in text
    assert "depends on" not in imported(f"domain: devic.es\ndevices: [{VIDEO}]").text


def test_what_microshift_does_not_serve(imported):
    text = f"genericDevicePlugin: {{status: Disabled, devices: [{VIDEO}]}}"
    assert "  # MicroShift doesn't serve it, because its status there is Disabled." in imported(text).text


def test_usb_devices_as_microshift_writes_them(imported, tree):
    stick(tree, "1-1", 4)
    usbs = "{vendor: '0x1a86', product: 0x7523, serial: ''}"
    written = imported(f"genericDevicePlugin: {{devices: [{{name: ch, groups: [{{usbs: [{usbs}]}}]}}]}}")
    assert written.nodes("device.microshift.io/ch") == {"ch": [usb("/dev/bus/usb/001/004")]}


def test_a_name_that_no_kubelet_takes(imported):
    """It costs no other resource."""
    written = imported(DAEMON_SET.replace("name: fuse", f"name: {'f' * 64}"))
    assert set(written.resources) == {"example.com/serial"}
    (lost,) = written.not_kept
    assert (lost["line"], lost["resource"]) == (21, f"example.com/{'f' * 64}")
    assert lost["why"].endswith("64 characters, 1 to 63 are allowed") or "63" in lost["why"]


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
- name: disks
  groups:
  - paths: [{path: /dev/disk/by-id}]
""")
    assert written.lost == [
        (8, "devices[0].groups[2]", "devic.es/several", "the group of /dev/c"),
        (9, "devices[0].groups[3]", "devic.es/several", "the directory /dev/snd/"),
        (10, "devices[0].groups[4]", "devic.es/several", "the mount /opt/file"),
        (11, "devices[0].groups[5]", "devic.es/several", "/sys/kernel/node"),
        (6, "devices[0].groups[1]", "devic.es/several", "the group of /dev/b"),
        (14, "devices[1].groups[0]", "devic.es/mixed", "paths"),
        (12, "devices[1]", "devic.es/mixed", "the ids"),
        (18, "devices[2].groups[0]", "devic.es/only-mounts", "the mount /opt/file"),
        (20, "devices[3].groups", "devic.es/sticks", "groups of USB devices"),
        (25, "devices[4].groups[0]", "devic.es/disks", "the directory /dev/disk/by-id"),
    ]
    assert written.plain("devic.es/several") == {
        "paths": ("/dev/a",),
        "permissions": "r",
        "container_path": "/dev/x",
    }
    assert written.resources["devic.es/several"].shares.count == 3  # what the first group has
    assert set(written.resources) == {"devic.es/several", "devic.es/mixed"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "- --domain\n- 1\n",
            "theirs: found nothing of it, expected --device flags, or a file with `devices`",
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


def test_whichever_of_optional_links(imported, tree):
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


NOTHING = """\
genericDevicePlugin:
  status: Enabled
  devices:
  - name: serial
    groups:
    - usb: [{vendor: 1a86}, {device: 55d4}]
    - paths: [{path: /dev/ttyACM0}]
      usbs: [{vendor: "", product: ""}]
    - count: 2
  - name: stick
    groups: [{usb: [{vendor: 1a86}]}]
"""


def test_groups_without_a_device_cost_no_other(imported):
    """A number that isn't written is 0 there, which no USB device has."""
    written = imported(NOTHING)
    assert written.plain("device.microshift.io/serial") == {"paths": ("/dev/ttyACM0",), "permissions": "mrw"}
    assert list(written.resources) == ["device.microshift.io/serial"]
    assert [(line, resource, what) for line, _, resource, what in written.lost] == [
        (6, "", "device"),
        (6, "device.microshift.io/serial", "groups[0]"),
        (9, "device.microshift.io/serial", "groups[2]"),
        (11, "device.microshift.io/stick", "groups[0]"),
    ]


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


@pytest.mark.parametrize("path", ["/dev/sda", "/dev/nbd*", "/dev/nvme0n1", "/dev/mapper/vg-data"])
def test_block_devices(imported, path):
    assert imported(of(f"[{{paths: [{{path: '{path}'}}]}}]")).resources["a.b/it"].options.type == "block"


@pytest.mark.parametrize("path", ["/dev/sg0", "/dev/nvme0", "/dev/loop-control", "/dev/mapper/control", "/dev/random"])
def test_char_devices(imported, path):
    assert imported(of(f"[{{paths: [{{path: {path}}}]}}]")).resources["a.b/it"].options.type == "char"


def test_optional_first_path(imported, tree):
    node(tree, "ttyA0", "240:0", subsystem="tty")
    node(tree, "video7", "81:7", subsystem="video4linux")
    written = imported(of("[{paths: [{path: /dev/ttyA0, optional: true}, {path: /dev/video7}]}]"))
    assert written.nodes("a.b/it") == {"video7": [given("ttyA0"), given("video7")]}
    tree.remove("/dev/ttyA0")
    assert written.nodes("a.b/it") == {"video7": [given("video7")]}


def test_whichever_of_optional_paths(imported, tree):
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


def test_counts_above_the_most_shares(imported):
    written = imported(of("[{count: 5000, paths: [{path: /dev/fuse}]}]"))
    assert written.resources["a.b/it"].shares.count == 1000
    assert [(one["what"], one["why"]) for one in written.not_kept] == [("a count of 5000", "shares are at most 1000")]


def test_counts_of_groups_that_are_not_kept(imported):
    written = imported(of("[{count: 10, paths: [{path: /dev/a}]}, {count: 2, paths: [{path: /run/b}]}]"))
    assert written.resources["a.b/it"].shares.count == 10
    assert [one["what"] for one in written.not_kept] == ["/run/b"]
    written = imported(of("[{count: 10, paths: [{path: /dev/a}]}, {count: 2, paths: [{path: /dev/b}]}]"))
    assert (written.resources["a.b/it"].shares.count, written.lost[0][3]) == (2, "different counts")


def test_one_bad_entry(imported):
    """It costs no other one, nor do texts that only look like the plugin's."""
    written = imported(f"""\
kind: List
items:
- kind: ConfigMap
  metadata: {{annotations: {{last-applied: '{{"devices": [{VIDEO}]}}'}}}}
  data:
    broken.yaml: "devices: [ {{groups: }} ]: ]"
    config.yaml: |
      domain: a.b
      devices:
      - {VIDEO}
      - {{name: V, groups: [{{paths: [{{path: /dev/v}}]}}]}}
      - {{name: empty, groups: [{{}}]}}
""")
    assert set(written.resources) == {"a.b/video"}
    assert [one["line"] for one in written.not_kept] == [6, 11, 12]


def test_variables_of_flux(imported):
    """They cost the resources that have them, and are told once."""
    devices = f"--device, '{VIDEO}', --device, '{VIDEO.replace('video', 'cam')}'"
    written = imported(f"args:\n  [--domain, 'kubelet.${{DOMAIN}}', {devices}]\n")
    assert (written.resources, written.code) == ({}, 1)
    assert [(one["line"], one["what"]) for one in written.not_kept] == [(2, "the variable ${DOMAIN}")]
    assert written.not_kept[0]["why"].endswith("it is in kubelet.${DOMAIN}/video, kubelet.${DOMAIN}/cam")
    one = "{name: tty, groups: [{paths: [{path: '/dev/${TTY}'}]}]}"
    assert set(imported(f"domain: example.com\ndevices: [{VIDEO}, {one}]\n").resources) == {"example.com/video"}


def test_templates(imported):
    """Of Helm, Ansible or Jinja: what has no variable is kept."""
    tty = "{name: tty, groups: [{paths: [{path: '/dev/{{ tty }}'}]}]}"
    count = "\n    - name: few\n      groups:\n      - count: {{ few }}\n        paths: [{path: /dev/b}]\n"
    written = imported(f"data:\n  config.yaml: |\n    domain: a.b\n    devices:\n    - {VIDEO}\n    - {tty}{count}")
    assert set(written.resources) == {"a.b/video"}
    assert [(one["line"], one["what"]) for one in written.not_kept] == [
        (6, "the variable {{ tty }}"),
        (9, "the variable {{ few }}"),
    ]


def test_variables_where_nothing_else_is(importing):
    (told,) = importing.refused(PLUGIN, "devices: [{name: tty, groups: [{count: '${N}', paths: [{path: /dev/a}]}]}]\n")
    assert told.startswith('theirs:1: devices[0].groups[0].count: found "${N}", expected an integer; ')
    assert "`envsubst`" in told


def daemon_set(name, path, selector):
    device = f"{{name: tty, groups: [{{paths: [{{path: {path}}}]}}]}}"
    pods = f"{{{selector}, containers: [{{args: [--domain=a.example, --device, '{device}']}}]}}"
    return f"---\nkind: DaemonSet\nmetadata: {{name: {name}}}\nspec: {{template: {{spec: {pods}}}}}\n"


def test_daemon_sets_for_different_nodes(imported, importing):
    """A configuration has a name once, so these are two of them, in profiles of the chart."""
    left = daemon_set("left", "/dev/a", "nodeSelector: {side: left, kubernetes.io/os: linux}")
    right = daemon_set("right", "/dev/b", "nodeSelector: {side: right}") + daemon_set("all", "/dev/c", "x: y").replace(
        "name: tty", "name: all"
    )
    written = imported(left + right)
    assert written.plain("a.example/tty")["paths"] == ("/dev/a",)
    (lost,) = written.not_kept
    assert (lost["line"], lost["what"]) == (8, "the resource")
    nodes = "for nodeSelector side=left,kubernetes.io/os=linux, and this is for nodeSelector side=right: "
    assert lost["why"].startswith(f"line 4 has a resource of this name, too, {nodes}import it with --node-label=side=")
    assert "docs/how-to/install-cluster.md" in lost["why"]
    for side, path in (("left", "/dev/a"), ("right", "/dev/b")):
        one = imported(left + right, f"--node-label=side={side}", "--node-label=other=x")
        assert (one.plain("a.example/tty")["paths"], set(one.resources)) == (
            (path,),
            {"a.example/tty", "a.example/all"},
        )
        assert (one.code, one.not_kept) == (0, [])
        assert "odeSelector" not in one.text
    (told,) = importing.refused(PLUGIN, left, "--node-label=side=right")
    assert told.endswith("expected one of side=left, for which this file has devices")
    (told,) = importing.refused(PLUGIN, left, "--node-label=side")
    assert told.endswith("--node-label: found 'side', expected KEY=VALUE")


def test_what_a_node_of_other_labels_loses(imported):
    """It isn't told of what other nodes' DaemonSets lose."""
    left = daemon_set("left", "/dev/a", "nodeSelector: {side: left}").replace("groups: [{", "groups: [{count: 2000, ")
    right = daemon_set("right", "/dev/b", "nodeSelector: {side: right}")
    assert [one["what"] for one in imported(left + right, "--node-label=side=left").not_kept] == ["a count of 2000"]
    assert imported(left + right, "--node-label=side=right").not_kept == []


def test_daemon_sets_with_affinity(imported):
    left, right = "nodeSelector: {side: left}", "affinity: {nodeAffinity: {}}"
    (lost,) = imported(daemon_set("left", "/dev/a", left) + daemon_set("right", "/dev/b", right)).not_kept
    nodes = "for nodeSelector side=left, and this is for nodeAffinity: make a configuration of each, "
    assert lost["why"].startswith(f"line 4 has a resource of this name, too, {nodes}")


def test_daemon_sets_that_offer_the_same(imported):
    one, other = (daemon_set(name, "/dev/a", f"nodeSelector: {{side: {name}}}") for name in ("left", "right"))
    written = imported(one + other)
    assert (list(written.resources), written.not_kept) == (["a.example/tty"], [])


def test_nodes_by_name(imported):
    """Of what selects the nodes only a name is known here; the gateway's pods can have the rest."""
    host = "nodeSelector: {kubernetes.io/os: linux, kubernetes.io/hostname: %s}"
    left = daemon_set("left", "/dev/a", host % "w1")
    written = imported(left)
    assert (written.resources["a.example/tty"].nodes, written.code) == (("w1",), 0)
    assert "nodeSelector" not in written.text
    both = imported(left + daemon_set("right", "/dev/a", host % "w2"))
    assert (both.resources["a.example/tty"].nodes, both.code) == (("w1", "w2"), 0)
    everywhere = imported(left + daemon_set("right", "/dev/a", "nodeSelector: {side: right}"))
    assert (everywhere.resources["a.example/tty"].nodes, everywhere.code) == (("*",), 0)
    assert "NodeSelector has side: say `nodes` here, or let the gateway's pods have" in everywhere.text
    right = daemon_set("right", "/dev/b", host % "w2")
    other = imported(left + right)
    assert (other.resources["a.example/tty"].nodes, [one["line"] for one in other.not_kept]) == (("w1",), [8])
    assert "import it with --node-label=kubernetes.io/hostname=w2" in other.not_kept[0]["why"]
    only = imported(left + right, "--node-label=kubernetes.io/hostname=w2")
    assert (only.plain("a.example/tty")["paths"], only.resources["a.example/tty"].nodes) == (("/dev/b",), ("w2",))


def test_one_name_twice_for_the_same_nodes(imported):
    one, other = VIDEO, VIDEO.replace("video0", "video1")
    (lost,) = imported(f"domain: a.example\ndevices: [{one}, {other}]\n").not_kept
    assert lost["why"].startswith("line 2 has a resource of this name, too, and a configuration has each name once: ")


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        (
            "spec: {containers: [{image: squat/generic-device-plugin, env: [{name: DOMAIN, value: env.example}]}]}\n",
            "env",
        ),
        ("values: {env: {DOMAIN: env.example}}\n", "env"),
        ("values: {env: {DOMAIN: {value: env.example}}}\n", "env"),
        ("deviceDomain: env.example\n", "env"),
        ("args: [--domain, flag.example]\nvalues: {env: {DOMAIN: env.example}}\n", "flag"),
        ("spec: {containers: [{image: home-assistant, env: [{name: DOMAIN, value: env.example}]}]}\n", "file"),
    ],
)
def test_domain_of_the_environment(imported, text, domain):
    """A flag outweighs the variable DOMAIN, and that outweighs the file, because viper reads them in this order."""
    written = imported(f"{text}---\ndomain: file.example\ndevices: [{VIDEO}]\n")
    assert list(written.resources) == [f"{domain}.example/video"]


@pytest.mark.parametrize(
    ("chart", "domain"),
    [
        ("{chart: generic-device-plugin, sourceRef: {kind: HelmRepository, name: gabe565}}", "squat.ai"),
        ("{repoURL: https://charts.gabe565.com, chart: generic-device-plugin}", "squat.ai"),
        ("{chart: gabe565/generic-device-plugin}", "squat.ai"),
        ("[{chart: gabe565/paperless-ngx}, {chart: app-template}]", "devic.es"),
    ],
)
def test_domain_of_a_chart(imported, chart, domain):
    """gabe565's has a domain of its own, whatever the plugin's version."""
    text = (
        f"source: {chart}\nimage: {{repository: generic-device-plugin, tag: 0.2.0}}\nconfig: {{devices: [{VIDEO}]}}\n"
    )
    assert list(imported(text).resources) == [f"{domain}/video"]


def test_terraform(imported):
    device = "<<-EOT\n      name: video\n      groups: [{paths: [{path: /dev/video0}]}]\n    EOT\n"
    for domain in ('"--domain", "a.example",', '"--domain=a.example",'):
        written = imported(
            f'resource "kubernetes_daemonset" "a" {{\n  args = [\n    {domain} "--device", {device}  ]\n}}\n'
        )
        assert list(written.resources) == ["a.example/video"]


def test_modes_of_volumes(imported):
    """Numbers that YAML 1.1 and 1.2 read in two ways are none of the plugin's."""
    volume = "volumes: [{configMap: {name: a, defaultMode: 0775}}]"
    device = "{name: tun, groups: [{paths: [{path: /dev/net/tun}]}]}"
    written = imported(f'containers: [{{args: [--device, "{device}"]}}]\n{volume}\n')
    assert (set(written.resources), written.not_kept) == ({"devic.es/tun"}, [])
