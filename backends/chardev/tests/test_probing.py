"""Probes: a node that can be opened, an attribute, a command. What hangs is left behind, and holds up nothing."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from dpgateway_chardev import CharDevices
from dpgateway_chardev.probing import Check, Prober, pause
from dpgateway_chardev.settings import Probes

from dpgateway import Health, from_plain
from dpgateway.testing import Recorder
from tests.support.fuse import Directory, File, mounted
from tests.support.listed import reasons

FUNCTION = "/sys/devices/pci0000:00/0000:01:00.0"
SAYS = "echo first >&2; echo $1 is worn out >&2; exit 3"


def until(dev, driver, expected):
    """The driver is asked again only when it has said that something changed."""
    assert dev.recorder.until(lambda: reasons(driver) == expected), reasons(driver)


@pytest.fixture
def probed(dev):
    """Makes drivers of all nodes, with these probes."""

    def probed(**probes):
        health: Any = from_plain({"paths": ["/dev/x"], "health": probes}, CharDevices.Options).health
        return dev.drive("*", health=health)

    return probed


def test_probes_by_opening(dev, probed):
    dev.node("none", 77)
    os.mknod(dev.path / "null", 0o20666, os.makedev(1, 3))
    driver = probed(open=True)
    until(dev, driver, {"null": None, "none": "opening /dev/none: No such device or address"})


def test_a_command_says_why(dev, probed):
    dev.node("good", 1)
    dev.node("bad", 2)
    driver = probed(command=["/bin/sh", "-c", f"test $1 = good && exit; {SAYS}", "sh", "{id}"])
    until(dev, driver, {"good": None, "bad": f"/bin/sh -c test $1 = good && exit; {SAYS} sh bad: bad is worn out"})


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("(yes | head -c 1000000; printf 'worn out %01000d' 0) >&2; exit 1", f"worn out {'0' * 191}"),
        ("kill -9 $$", "ended by SIGKILL"),
        ("kill -40 $$", "ended by signal 40"),
    ],
    ids=["its last line", "a signal", "a signal without a name"],
)
def test_why_a_command_failed(dev, probed, script, why):
    dev.node("a", 1)
    until(dev, probed(command=["/bin/sh", "-c", script]), {"a": f"/bin/sh -c {script}: {why}"})


def test_command_gets_only_path(dev, probed, tmp_path):
    dev.node("a", 1)
    driver = probed(command=["/bin/sh", "-c", f"exec /usr/bin/env > {tmp_path}/env"])
    until(dev, driver, {"a": None})
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names <= {"PATH", "PWD", "SHLVL", "_"}


def test_kills_a_hanging_probe(dev, probed, tmp_path):
    dev.node("hangs", 1)
    dev.node("works", 2)
    script = f"echo $$ >> {tmp_path}/$1; test $1 = works || exec sleep 1000"
    driver = probed(command=["/bin/sh", "-c", script, "sh", "{name}"], deadline="500ms")
    until(dev, driver, {"works": None, "hangs": f"/bin/sh -c {script} sh hangs: it hasn't ended within 0.5 s"})
    hangs = tmp_path / "hangs"
    while not (hangs.exists() and hangs.read_text().endswith("\n")):  # one killed before it came so far is asked again
        os.sched_yield()
    pid = int(hangs.read_text().split()[0])
    while Path(f"/proc/{pid}").exists():
        os.sched_yield()


class Counting(str):
    """An id that counts how often it is compared, or looked up."""

    __slots__ = ()
    asked = 0

    def __hash__(self):
        Counting.asked += 1
        return super().__hash__()

    def __eq__(self, other):
        Counting.asked += 1
        return super().__eq__(other)


def test_thousands_of_probes_are_listed_in_linear_time():
    """A list of them has 10 s, and holds the interpreter's lock."""
    prober = Prober("probes", from_plain({"open": True, "every": "1h"}, Probes), lambda: None)
    counts = []
    for many in (20, 200):
        checks: dict[str, list[Check]] = {
            Counting(number): [Check("opening", ("/bin/true", str(number)))] for number in range(many)
        }
        Counting.asked = 0
        for _ in range(2):
            prober.watch(checks)
            assert all(prober.reason(id_) != "" for id_ in checks)
        counts.append(Counting.asked)
    prober.close()
    assert counts[1] < 20 * counts[0]


class Hanging(File):
    """Who opens it waits in the kernel, whatever signals come: its file system has taken the request (fs/fuse/dev.c,
    request_wait_answer).
    """

    opens_slowly = True

    def __init__(self):
        self.over, self.waiting = threading.Event(), list[int]()

    def open(self):
        self.waiting.append(1)
        self.over.wait()


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # it can't be waited for
def test_leaves_unkillable_probes_behind(dev, probed, tmp_path):
    hanging, names = Hanging(), [f"hangs{number}" for number in range(8)]
    for number, name in enumerate([*names, "works"]):
        dev.node(name, number)
    (tmp_path / "fuse").mkdir()
    script = f"test $1 = works || {{ echo $$ > {tmp_path}/$1; exec cat {tmp_path}/fuse/file; }}"
    command = ["/bin/sh", "-c", script, "sh", "{name}"]
    with mounted(Directory(file=hanging), tmp_path / "fuse"):
        driver = probed(command=command, deadline="1s")
        reasons(driver)
        while len(hanging.waiting) < len(names):  # who was killed before it came so far is asked again
            os.sched_yield()
        why = {name: f"/bin/sh -c {script} sh {name}: it hasn't ended within 1 s" for name in names}
        until(dev, driver, {**why, "works": None})
        alive = [Path(f"/proc/{(tmp_path / name).read_text().strip()}") for name in names]
        assert [path.exists() for path in alive] == [True] * len(names), "nothing ends them"
        began = time.monotonic()
        driver.close()
        assert time.monotonic() - began < 3.9  # with half a second for each it would be four
    hanging.over.set()
    while any(map(runs, alive)):
        os.sched_yield()


def test_a_device_that_comes_again_waits_for_its_last_probe(dev, probed, tmp_path):
    """Else a device that comes and goes could fill the node with processes that nothing ends."""
    hanging, what = Hanging(), f"/bin/sh -c exec < $0 {tmp_path}/fuse/file"
    (tmp_path / "fuse").mkdir()
    with mounted(Directory(file=hanging), tmp_path / "fuse"):
        dev.node("a", 1)
        driver = probed(command=["/bin/sh", "-c", "exec < $0", f"{tmp_path}/fuse/file"], deadline="60s")
        assert reasons(driver) == {"a": f"{what}: nothing is known yet"}
        while not hanging.waiting:
            os.sched_yield()
        for _ in range(3):
            (dev.path / "a").unlink()
            assert reasons(driver) == {}
            dev.node("a", 1)
            assert reasons(driver) == {"a": f"{what}: an earlier one was killed, and hasn't ended"}
        hanging.over.set()
        until(dev, driver, {"a": None})
        assert len(hanging.waiting) == 2
        driver.close()


def test_a_program_that_hangs_while_loaded_holds_up_nothing(dev, probed, tmp_path):
    hanging, fuse = Hanging(), tmp_path / "fuse"
    fuse.mkdir()
    (tmp_path / "hangs").symlink_to(fuse / "file")
    (tmp_path / "works").symlink_to("/bin/true")
    for number, name in enumerate(("hangs", "works")):
        dev.node(name, number)
    late = threading.Timer(20, hanging.over.set)  # else whoever waits for it would wait for ever
    late.start()
    with mounted(Directory(file=hanging), fuse):
        driver = probed(command=[f"{tmp_path}/{{name}}"], deadline="1s")
        until(dev, driver, {"works": None, "hangs": f"{tmp_path}/hangs: it hasn't ended within 1 s"})
        driver.close()
        assert hanging.waiting
        assert not hanging.over.is_set()
        late.cancel()
        (tmp_path / "hangs").unlink()  # its file system can't answer Python before 3.11.4, which begins a process
        (tmp_path / "hangs").symlink_to("/bin/true")
        hanging.over.set()


def runs(process):
    try:
        return "Z" not in (process / "stat").read_text()
    except OSError:  # somebody has waited for it
        return False


def test_a_device_that_recovers_is_healthy_again(dev, probed, tmp_path):
    dev.node("a", 1)
    ok = tmp_path / "ok"
    driver = probed(command=["/usr/bin/test", "-e", str(ok)], every="20ms")
    what = f"/usr/bin/test -e {ok}"
    until(dev, driver, {"a": f"{what}: exit code 1"})
    ok.touch()
    until(dev, driver, {"a": None})
    ok.unlink()
    until(dev, driver, {"a": f"{what}: exit code 1"})


def test_failing_probe_backs_off():
    assert [pause(failures, 30.0) for failures in (0, 1, 2, 3, 6, 100)] == [30, 1, 2, 4, 30, 30]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["/no/such"], "No such file or directory"),
        (["/bin/true", "a\0b"], "embedded null byte"),
        (
            ["/bin/true", "\ud800"],
            "'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed",
        ),
    ],
)
def test_reports_a_program_that_cannot_be_started(dev, probed, command, why):
    dev.node("a", 1)
    reason = Health.unhealthy(f"{' '.join(command)}: {command[0]} can't be started: {why}").reason
    until(dev, probed(command=command), {"a": reason})


def test_more_devices_than_are_asked_at_once(dev, probed):
    for number in range(20):
        dev.node(f"n{number}", number)
    until(dev, probed(command=["/bin/true"]), {f"n{number}": None for number in range(20)})


def test_children_end_with_the_driver(dev, probed, tmp_path):
    for name in ("a", "b"):
        dev.node(name, ord(name))
    script = f"echo $$ > {tmp_path}/$1; exec sleep 1000"
    driver = probed(command=["/bin/sh", "-c", script, "sh", "{id}"], deadline="60s")
    assert reasons(driver) == {name: f"/bin/sh -c {script} sh {name}: nothing is known yet" for name in ("a", "b")}

    def alive(name):
        file = tmp_path / name
        return file.exists() and file.read_text() and Path(f"/proc/{file.read_text().strip()}").exists()

    while not (alive("a") and alive("b")):
        os.sched_yield()
    (dev.path / "a").unlink()
    driver.devices()
    while alive("a"):
        os.sched_yield()
    assert alive("b")
    b = Path(f"/proc/{(tmp_path / 'b').read_text().strip()}")
    driver.close()
    while runs(b):  # it is killed, and its end isn't waited for longer than half a second
        os.sched_yield()


def test_an_attribute_is_compared_at_each_look(tree, drive):
    tree.write(f"""
        {FUNCTION}/subsystem -> /sys/bus/pci
        {FUNCTION}/link = 1
        /sys/bus/pci/devices/0000:01:00.0 -> {FUNCTION}
    """)
    driver = drive({"subsystem": "pci"}, nodes=[], health={"attr": {"link": {"at_least": 1}}})
    (device,) = driver.devices()
    assert device.health.ok
    tree.write(f"{FUNCTION}/link = 0")
    assert reasons(driver) == {"0000:01:00.0": "health.attr.link: found '0', expected at least 1"}
    with pytest.raises(Exception, match=r"health\.attr\.link: found '0'"):
        driver.allocate([device])


def test_fills_the_command(tree, drive):
    tree.write(f"{FUNCTION}/serial = A7\n/sys/bus/pci/devices/0000:01:00.0 -> {FUNCTION}")
    health = {"command": ["/bin/sh", "-c", "echo $1 >&2; exit 1", "sh", "{attr:serial}"]}
    recorder = Recorder()
    driver = drive({"subsystem": "pci"}, recorder, nodes=[], id="{kernel}", health=health)
    assert recorder.until(lambda: next(one.health.reason or "" for one in driver.devices()).endswith(": A7"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paths": ["/dev/x"], "health": {}}, "health: .*expected open, attr or command"),
        ({"paths": ["/dev/x"], "health": {"attr": {"a": "b"}}}, "health.*attr.*expected it with match only"),
        ({"paths": ["/dev/x"], "health": {"command": ["smi"]}}, "expected the absolute path of a program first"),
        ({"paths": ["/dev/x"], "health": {"command": ["/x", "{kernel}"]}}, "expected {name}, {id} or {devnode}"),
        ({"paths": ["/dev/x"], "health": {"open": True, "every": "0s"}}, "every: found 0s, expected more than 0s"),
        ({"match": {"subsystem": "a"}, "health": {"command": ["/x", "{kernl}"]}}, "did you mean kernel"),
    ],
)
def test_probes_that_mean_nothing_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        from_plain(options, CharDevices.Options)
