"""The kernel's own comings and goings, and its messages in network namespaces."""

import errno
import fcntl
import os
import time
from pathlib import Path
from textwrap import dedent

import pytest

from dpgateway.testing import Recorder

LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81  # include/uapi/linux/loop.h
NETWORK = """
    import dataclasses, fcntl, socket, struct, subprocess, threading
    here = dev.parent
    (here / "real").mkdir()
    subprocess.run(["mount", "-t", "sysfs", "sysfs", str(here / "real")], check=True)
    def match(match, sysfs, changed=recorder.context().changed):
        options = {"match": match, "sysfs": str(sysfs), "dev": str(dev), "nodes": []}
        context = dataclasses.replace(recorder.context(), changed=changed)
        return CharDevices(from_plain(options, CharDevices.Options), context)
    def until(driver, *expected):
        while True:
            assert recorder.changed.wait(20), f"no change was told, expected {expected}, found {listed(driver)}"
            recorder.changed.clear()
            if sorted(listed(driver)) == sorted(expected):
                return
"""


@pytest.fixture
def loop():
    """Adds and removes a loop device that nobody has."""
    try:
        control = os.open("/dev/loop-control", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"this kernel has no loop devices (CONFIG_BLK_DEV_LOOP): {error.strerror}")
    fcntl.flock(control, fcntl.LOCK_EX)  # or other tests that run now would take the same number
    number = next(number for number in range(200, 1000) if not Path(f"/dev/loop{number}").exists())

    def call(request):
        deadline = time.monotonic() + 20
        while True:
            try:
                return fcntl.ioctl(control, request, number)
            except OSError as error:  # somebody, such as udev, has a look at what has just come
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                os.sched_yield()

    yield number, call
    if Path(f"/dev/loop{number}").exists():
        call(LOOP_CTL_REMOVE)
    os.close(control)


def test_a_loop_device_comes_and_goes(drive, loop):
    number, call = loop
    recorder = Recorder()
    options = {"type": "block", "sysfs": "/sys", "dev": "/dev"}
    driver = drive({"subsystem": "block", "kernel": f"loop{number}"}, recorder, id="{kernel}", **options)

    def until(expected):
        while True:
            assert recorder.changed.wait(20), f"no change was told, expected {expected}"
            recorder.changed.clear()
            if {device.id: device.health.ok for device in driver.devices()} == expected:
                return

    assert driver.devices() == ()
    for _ in range(3):
        call(LOOP_CTL_ADD)
        until({f"loop{number}": True})
        call(LOOP_CTL_REMOVE)
        until({})


def test_interface_comes_in_its_namespace(child):
    if not Path("/dev/net/tun").exists():
        pytest.skip("this kernel has no tun (CONFIG_TUN)")
    script = """
        driver = match({"subsystem": "net", "kernel": "dpgw*"}, here / "real")
        assert listed(driver) == {}
        tun = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"dpgw0", 0x1001))  # TUNSETIFF, IFF_TUN | IFF_NO_PI
        until(driver, "dpgw0")
        os.close(tun)
        until(driver)
        driver.close()
    """
    child(dedent(NETWORK) + dedent(script), "unshare", "--net", "--mount")


def test_interface_elsewhere_is_healthy(child, drive):
    """As a virtual function is whose interface was given to a pod."""
    interfaces = [path for path in Path("/sys/class/net").iterdir() if (path / "device").exists()]
    lines = [[one.name for one in (path / "device").resolve().parents] for path in interfaces]
    names = [path.resolve().name for path in Path("/sys/bus/pci/devices").iterdir()]
    found = [(path, name) for path, line in zip(interfaces, lines, strict=True) for name in line if name in names]
    if not found:
        pytest.skip("this machine has no network interface on a PCI bus")
    interface, name = found[0]
    (device,) = drive({"subsystem": "pci", "kernel": name}, sysfs="/sys", nodes=[]).devices()
    assert (device.id, device.health.ok) == (name, True)
    script = f"""
        assert not (here / "real/class/net/{interface.name}").exists()
        driver = match({{"subsystem": "pci", "kernel": "{name}"}}, here / "real")
        assert listed(driver) == {{"{name}": None}}
        driver.close()
    """
    child(dedent(NETWORK) + dedent(script), "unshare", "--net", "--mount")


def test_uevents_arrive_in_a_namespace(child):
    """Root may have the kernel send what it likes to a network namespace of its own (lib/kobject_uevent.c)."""
    script = """
        made = here / "made"
        (made / "class/x").mkdir(parents=True)
        entered, go_on = threading.Event(), threading.Event()
        go_on.set()
        def changed():
            entered.set()
            go_on.wait()
            recorder.context().changed()
        driver = match({"subsystem": "x"}, made, changed)
        assert listed(driver) == {}
        kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15)
        def say(path, subsystem="x"):
            text = f"add@/{path}\\0ACTION=add\\0DEVPATH=/{path}\\0SUBSYSTEM={subsystem}\\0".encode()
            header = struct.pack("=IHHII", 16 + len(text), 16, 1, 0, 0)
            kernel.sendto(header + text, (0, 0))
        def plug(name):
            (made / "devices" / name).mkdir(parents=True)
            (made / "class/x" / name).symlink_to(f"../../devices/{name}")
        entered.clear()
        plug("a")
        say("devices/a")
        assert entered.wait(20)
        until(driver, "a")
        go_on.clear()
        entered.clear()
        say("devices/a")
        assert entered.wait(20)
        plug("b")
        for _ in range(20_000):  # more than the socket holds, while nobody reads; none of them matters
            say("devices/elsewhere", "other")
        entered.clear()
        go_on.set()
        assert entered.wait(20), "that messages were lost is a change"
        until(driver, "a", "b")
        driver.close()
    """
    child(dedent(NETWORK) + dedent(script), "unshare", "--net", "--mount")
