from pathlib import Path

import pytest
from dpgateway_chardev.importers.smarter import smarter_device_manager

from dpgateway.importing import InvalidConfiguration, Source

PLUGIN = "smarter-device-manager"

CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
data:
  conf.yaml: |
        - devicematch: ^snd$
          nummaxdevices: 20
        - devicematch: ^rtc0$
          nummaxdevices: 20
        - devicematch: ^ttyUSB[0-9]*$
          nummaxdevices: 1
        - devicematch: by-id/
          nummaxdevices: 1
        - devicematch: nvidia-gpu
          nummaxdevices: 10
"""


@pytest.fixture(autouse=True)
def nodes(tree):
    tree.write("""
        c /dev/ttyUSB0 240:0
        c /dev/ttyUSB1 240:1
        c /dev/tty0 240:2
        c /dev/snd/timer 116:33
        /sys/devices/virtual/sound/timer/subsystem -> /sys/class/sound
        /sys/devices/virtual/sound/timer/dev = 116:33
        /sys/devices/virtual/sound/timer/uevent = DEVNAME=snd/timer
        /sys/class/sound/timer -> /sys/devices/virtual/sound/timer
        /dev/shm/
        /dev/serial/by-id/usb-A.B_1 -> /dev/ttyUSB0
    """)


def test_a_resource_for_each_device(imported):
    written = imported(CONFIG_MAP)
    assert written.nodes("smarter-devices/ttyUSB1") == {"ttyUSB1": [("/dev/ttyUSB1", "/dev/ttyUSB1", "rw")]}
    assert written.nodes("smarter-devices/serial_by-id_usb-A_B_1") == {
        "serial/by-id/usb-A.B_1": [("/dev/serial/by-id/usb-A.B_1", "/dev/serial/by-id/usb-A.B_1", "rw")]
    }
    assert written.nodes("smarter-devices/snd") == {"snd": [("/dev/snd/timer", "/dev/snd/timer", "rw")]}
    assert {name: one.shares.count for name, one in written.resources.items()} == {
        "smarter-devices/snd": 20,
        "smarter-devices/rtc0": 20,
        "smarter-devices/ttyUSB0": 1,
        "smarter-devices/ttyUSB1": 1,
        "smarter-devices/serial_by-id_usb-A_B_1": 1,
    }
    assert {one.shares.ids for one in written.resources.values()} == {"{share}"}
    assert written.nodes("smarter-devices/rtc0") == {}  # it isn't there


def test_what_is_not_kept(imported):
    assert [(line, what) for line, _, _, what in imported(CONFIG_MAP).lost] == [
        (9, "devices that ^ttyUSB[0-9]*$ will find"),
        (11, "devices that by-id/ will find"),
        (13, "nvidia-gpu"),
    ]
    shm = imported("- {devicematch: ^shm$, nummaxdevices: 2}\n- {devicematch: ^snd, nummaxdevices: 2}\n")
    assert (1, "the directory /dev/shm") in [(line, what) for line, _, _, what in shm.lost]
    assert imported("- devicematch: ^ttyUSB0$\n").resources == {}


@pytest.mark.parametrize(
    ("last", "count", "lost"),
    [
        (1, 1, "nummaxdevices of 2"),
        (2, 2, None),
        (0, None, "nummaxdevices of 2"),
    ],
)
def test_the_last_match_of_a_device_counts(imported, last, count, lost):
    """The plugin registers both, and the kubelet keeps the last list."""
    written = imported(f"- {{devicematch: ^tty, nummaxdevices: 2}}\n- {{devicematch: USB0$, nummaxdevices: {last}}}\n")
    resource = written.resources.get("smarter-devices/ttyUSB0")
    assert (resource.shares.count if resource else None) == count
    assert written.resources["smarter-devices/ttyUSB1"].shares.count == 2
    first = [what for line, _, name, what in written.lost if line == 1 and name == "smarter-devices/ttyUSB0"]
    assert first == ([lost] if lost else [])


def test_the_last_device_of_a_name(imported, tree):
    tree.write("c /dev/tty-USB/0 240:3\n c /dev/tty-USB_0 240:4")
    written = imported("- {devicematch: ^tty-USB_0$, nummaxdevices: 1}\n- {devicematch: USB/0, nummaxdevices: 1}\n")
    assert written.nodes("smarter-devices/tty-USB_0") == {"tty-USB/0": [("/dev/tty-USB/0", "/dev/tty-USB/0", "rw")]}
    assert (1, "", "smarter-devices/tty-USB_0", "/dev/tty-USB_0") in [(one[0], "", *one[2:]) for one in written.lost]


@pytest.mark.parametrize(
    "text",
    [
        "kind: HelmRelease\nspec: {values: {config: [{devicematch: ^rtc0$, nummaxdevices: 5}]}}\n",
        "config: |\n  - devicematch: ^rtc0$\n    nummaxdevices: 5\n",
        "fuseDevicePlugin: {enabled: true, devices: [{devicematch: ^rtc0$, nummaxdevices: 5}]}\n",
    ],
)
def test_what_wraps_it(imported, text):
    written = imported(text)
    assert {name: one.shares.count for name, one in written.resources.items()} == {"smarter-devices/rtc0": 5}
    assert written.not_kept == []


def test_a_name_that_is_too_long(imported, tree):
    """The kubelet takes 63 characters; the other devices are served, by the plugin, too."""
    tree.write(f"/dev/serial/by-id/{'x' * 60} -> /dev/ttyUSB0")
    written = imported(
        "- {devicematch: ^serial/by-id/x, nummaxdevices: 1}\n- {devicematch: ^rtc0$, nummaxdevices: 5}\n"
    )
    assert set(written.resources) == {"smarter-devices/rtc0"}
    assert "63 are allowed" in written.not_kept[-1]["why"]


def test_counts_above_the_most_shares(imported):
    written = imported("- {devicematch: ^rtc0$, nummaxdevices: 5000}\n")
    assert written.resources["smarter-devices/rtc0"].shares.count == 1000
    assert [one["why"] for one in written.not_kept] == ["shares are at most 1000"]


@pytest.mark.parametrize(
    "expression", ["^*ttyUSB0$", "^[[:lower:]]+USB0$", "^tty[[:upper:]]*[[:digit:]]$+", "[[:word:]]SB0$"]
)
def test_expressions_of_go(imported, expression):
    assert "smarter-devices/ttyUSB0" in imported(f"- {{devicematch: '{expression}', nummaxdevices: 1}}\n").resources


@pytest.mark.parametrize("expression", [r"^serial/by-id/usb-A\.B_1-if0$", "^serial/by-id/usb-A.B_1-if0$"])
def test_names_with_dots(imported, expression):
    """They needn't be there either, and mean themselves whether or not somebody has thought of what a dot is."""
    written = imported(f"- {{devicematch: '{expression}', nummaxdevices: 3}}\n")
    assert {name: one.options.paths for name, one in written.resources.items()} == {
        "smarter-devices/serial_by-id_usb-A_B_1-if0": ("/dev/serial/by-id/usb-A.B_1-if0",)
    }
    assert written.not_kept == []


def test_dots_that_match_other_names(imported):
    written = imported("- {devicematch: ^ttyUSB.$, nummaxdevices: 1}\n")
    assert set(written.resources) == {"smarter-devices/ttyUSB0", "smarter-devices/ttyUSB1"}
    assert [one["what"] for one in written.not_kept] == ["devices that ^ttyUSB.$ will find"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a\n", "theirs: found nothing of it, expected a list of mappings with the keys devicematch, "),
        ("config: {}\n", "theirs: found nothing of it, expected a list of mappings with the keys devicematch, "),
        ("- devicematch: '['\n", "theirs:1: [0].devicematch: found '[': "),
        ("- {devicematch: a, nummaxdevices: many}\n", 'theirs:1: [0].nummaxdevices: found "many", expected an integer'),
    ],
)
def test_what_makes_no_sense_is_refused(importing, text, told):
    assert any(line.startswith(told) for line in importing.refused(PLUGIN, text))


def test_refuses_directories_outside_dev(tmp_path):
    """Some of its names can't be looked at, and links lead around in circles."""
    (tmp_path / "theirs").write_text("- devicematch: .*\n")
    with pytest.raises(InvalidConfiguration, match="/proc: found more than 100000 names, expected a node's /dev"):
        smarter_device_manager(Source.read(tmp_path / "theirs", Path("/proc")))
