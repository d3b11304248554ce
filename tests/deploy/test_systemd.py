"""The systemd unit, its example configuration and the page that installs them agree, and the unit stays tight."""

import re
import shlex
from pathlib import Path

import pytest

from dpgateway.cli.options import DEFAULT_CONFIG
from dpgateway.config import DEVICE_PLUGINS_DIR, read
from dpgateway.config.values import STATE_DIR
from tests.docs.pages import Page

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/systemd"
PAGE = Page("how-to/install-systemd.md")
COMMANDS = [
    shlex.split(line)
    for block in PAGE.commands
    for line in re.sub(r"^cat > .*?^END$", "", block.text, flags=re.MULTILINE | re.DOTALL).splitlines()
    if line
]


def settings(text):
    """Each key's values, in order, because a key may be repeated. An empty value forgets those before it."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[key] = [*found.get(key, []), value]
    return found


UNIT = settings((FOLDER / "dpgateway@.service").read_text())


def one(key):
    (value,) = UNIT[key]
    return value


ON = """
    LockPersonality MemoryDenyWriteExecute NoNewPrivileges PrivateTmp ProtectControlGroups ProtectHome ProtectHostname
    ProtectKernelLogs ProtectKernelModules ProtectKernelTunables RemoveIPC RestrictNamespaces RestrictRealtime
    RestrictSUIDSGID
""".split()  # noqa: SIM905  a list of words is easier to read


class TestUnit:
    def test_it_runs_what_the_page_installs(self):
        program, command = one("ExecStart").split()
        environment = str(Path(program).parents[1])
        assert command == "run"
        assert ["python3", "-m", "venv", environment] in COMMANDS
        assert [program, "check"] in COMMANDS
        assert any(line[:2] == [f"{environment}/bin/pip", "install"] for line in COMMANDS)

    def test_it_reads_what_the_page_installs(self):
        variables = dict(value.split("=", 1) for value in UNIT["Environment"])
        assert variables["DPGATEWAY_CONFIG"] == str(DEFAULT_CONFIG)
        assert installed("deploy/systemd/config.yaml") == str(DEFAULT_CONFIG)
        assert installed("deploy/systemd/dpgateway@.service") == "/etc/systemd/system/dpgateway@.service"
        assert f"cat > {one('EnvironmentFile').removeprefix('-')} <<" in PAGE.text

    def test_it_kills_a_gateway_that_hangs_when_the_pages_say(self):
        seconds = f"{one('TimeoutStopSec').removesuffix('s')} s"
        assert f"isn't ready within {seconds} (`TimeoutStopSec=`)" in PAGE.text
        assert f"systemd after `TimeoutStopSec=`, which is {seconds} in" in Page("reference/command-line.md").text

    def test_the_page_removes_all_that_it_and_the_service_make(self):
        removed = {path for line in COMMANDS if line[0] == "rm" for path in line[2:] if path.startswith("/")}
        state = f"/run/{one('RuntimeDirectory')}"
        (linked,) = [line[3] for line in COMMANDS if line[:3] == ["ln", "-sf", one("ExecStart").split()[0]]]
        assert removed == {
            "/opt/dpgateway",
            linked,
            "/etc/systemd/system/dpgateway@.service",
            one("EnvironmentFile").removeprefix("-"),
            str(DEFAULT_CONFIG.parent),
            f"{DEVICE_PLUGINS_DIR}/dpgateway",
            state,
            str(STATE_DIR),
        }

    def test_it_tells_systemd_how_it_stands_and_is_started_again(self):
        assert (one("NotifyAccess"), one("WatchdogSec")) == ("main", "60s")
        assert UNIT["Type"] == ["notify", "notify-reload"]  # systemd before 253 ignores the second one
        assert one("ExecReload") == "/bin/kill -HUP $MAINPID"
        assert (one("Restart"), one("RestartPreventExitStatus"), one("StartLimitIntervalSec")) == ("always", "2", "0")

    def test_it_waits_for_the_gateway_that_takes_over_while_it_is_restarted(self):
        """tests/systemd runs it."""
        assert "systemctl start %p@%i-next" in one("ExecStop")
        assert one("ExecStartPost") == "-/bin/systemctl stop --no-block %p@%i-next"
        assert ["systemctl", "start", "dpgateway@node-next"] in COMMANDS

    def test_it_comes_before_the_kubelet_and_outlives_it(self):
        assert one("Before") == "kubelet.service"
        for key in ("Requires", "BindsTo", "PartOf", "Wants", "After"):
            assert "kubelet" not in " ".join(UNIT.get(key, []))

    def test_it_may_write_down_what_it_gave_away_where_nobody_else_may(self):
        assert f"/var/lib/{one('StateDirectory')}" == str(STATE_DIR)
        assert one("StateDirectoryMode") == "0700"

    def test_it_may_write_where_the_kubelet_makes_its_directory(self):
        assert one("ReadWritePaths") == str(DEVICE_PLUGINS_DIR.parent) == one("RequiresMountsFor")

    @pytest.mark.parametrize(
        ("key", "values"),
        [
            *((key, ["yes"]) for key in ON),
            ("CapabilityBoundingSet", [""]),
            ("DevicePolicy", ["closed"]),
            ("IPAddressDeny", ["any"]),
            ("KeyringMode", ["private"]),
            ("ProtectProc", ["invisible"]),
            ("ProtectSystem", ["strict"]),
            ("RestrictAddressFamilies", ["AF_UNIX AF_NETLINK"]),
            ("SystemCallArchitectures", ["native"]),
            ("SystemCallFilter", ["@system-service", "~@privileged @resources @mount"]),
            ("UMask", ["0077"]),
        ],
    )
    def test_it_is_hardened(self, key, values):
        assert UNIT[key] == values

    def test_what_hides_devices_is_off(self):
        """PrivateDevices and ProtectClock give the service another /dev, PrivateNetwork another /sys/class/net."""
        assert not {"PrivateDevices", "ProtectClock", "PrivateNetwork", "DynamicUser"} & UNIT.keys()


def installed(source):
    """Where the page puts a file of the clone."""
    places = {line[-1] for line in COMMANDS if line[0] == "install" and line[-2] == source}
    (place,) = places
    return place


def test_what_the_page_sets_in_drop_ins_is_spelt_as_in_the_unit():
    table = PAGE.text.partition("| a driver that | needs |")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)=", table))
    assert named - UNIT.keys() == {"DeviceAllow", "IPAddressAllow"}


def test_the_example_configuration_is_right():
    document, problems = read(FOLDER / "config.yaml")
    assert not problems
    assert {entry.driver for entry in document.entries} == {"chardev"}
    assert "./backends/chardev" in PAGE.commands[0].text
