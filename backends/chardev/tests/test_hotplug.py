import errno
import fcntl
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from dpgateway_chardev import CharDevices

from dpgateway import Context

VT_DISALLOCATE = 0x5608  # include/uapi/linux/vt.h


def healthy(driver):
    return {device.id for device in driver.devices() if device.health.ok}


def first_list(dev, driver):
    """What is healthy at first; what is told from now on comes from a change."""
    listed = healthy(driver)
    dev.recorder.changed.clear()
    return listed


def until(dev, driver, *expected):
    """Asks the driver only when it has said that something changed, as the gateway does."""
    while True:
        assert dev.recorder.changed.wait(20), f"expected a change until {expected} are healthy"
        dev.recorder.changed.clear()
        if healthy(driver) == set(expected):
            return


def test_nodes_come_and_go(dev):
    driver = dev.drive("ttyUSB*", "modem")
    assert first_list(dev, driver) == set()
    dev.node("ttyUSB0", 0)
    until(dev, driver, "ttyUSB0")
    dev.node("modem", 1)
    until(dev, driver, "ttyUSB0", "modem")
    (dev.path / "ttyUSB0").rename(dev.path / "ttyUSB7")
    until(dev, driver, "ttyUSB7", "modem")
    (dev.path / "modem").rename(dev.path / "other")
    until(dev, driver, "ttyUSB7")
    (dev.path / "ttyUSB7").unlink()
    until(dev, driver)


def test_directories_come_and_go(dev):
    driver = dev.drive("serial/by-id/*", "bus/usb/001/002", "snd/**")
    assert first_list(dev, driver) == set()
    dev.node("bus/usb/001/002", 2)
    until(dev, driver, "bus/usb/001/002")
    dev.node("serial/by-id/x", 1)
    until(dev, driver, "bus/usb/001/002", "serial/by-id/x")
    dev.node("snd/card0/by-id/pcm", 3)
    until(dev, driver, "bus/usb/001/002", "serial/by-id/x", "snd/card0/by-id/pcm")
    (dev.path / "serial").rename(dev.path / "serial.old")
    until(dev, driver, "bus/usb/001/002", "snd/card0/by-id/pcm")
    dev.node("serial/by-id/y", 4)
    until(dev, driver, "bus/usb/001/002", "serial/by-id/y", "snd/card0/by-id/pcm")


def test_a_directory_may_replace_a_file(dev):
    (dev.path / "serial").write_text("")
    driver = dev.drive("serial/x", "ttyUSB*")
    assert first_list(dev, driver) == set()
    dev.node("ttyUSB0", 0)
    until(dev, driver, "ttyUSB0")
    (dev.path / "serial").unlink()
    dev.node("serial/x", 1)
    until(dev, driver, "ttyUSB0", "serial/x")
    assert dev.recorder.messages == []


def test_whole_dev_comes_and_goes(dev, tmp_path):
    driver = dev.drive("ttyUSB*", dev=f"{tmp_path}/host/mounted/dev")
    assert first_list(dev, driver) == set()
    real = tmp_path / "host/mounted/dev"
    for leave in (lambda: shutil.rmtree(tmp_path / "host"), lambda: real.rename(tmp_path / "old")):
        dev.node(real / "ttyUSB0", 0)
        until(dev, driver, "ttyUSB0")
        (real / "ttyUSB0").unlink()
        until(dev, driver)
        leave()
        until(dev, driver)
    dev.node(real / "ttyUSB0", 0)
    until(dev, driver, "ttyUSB0")


def test_notices_changes_during_first_list(dev):
    """In one of many rounds it comes just between the look and the watch."""
    for number in range(200):
        driver = dev.drive(f"{number}/*/tty")
        thread = threading.Thread(target=dev.node, args=(f"{number}/a/tty", number))
        thread.start()
        listed = healthy(driver)
        thread.join()
        if not listed:
            until(dev, driver, f"{number}/a/tty")
        driver.close()
        dev.recorder.changed.clear()


def test_follows_a_renamed_link(dev):
    """As udevd does it: the link is made under a name with a leading dot and renamed."""
    dev.node("ttyUSB0", 0)
    dev.node("ttyUSB1", 1)
    dev.link("serial/by-id/x", "../../ttyUSB0")
    driver = dev.drive("serial/by-id/*")
    (before,) = driver.devices()
    dev.recorder.changed.clear()
    dev.link("serial/by-id/.#x", "../../ttyUSB1").rename(dev.path / "serial/by-id/x")
    assert dev.recorder.changed.wait(20)
    (after,) = driver.devices()
    assert (after.id, str(before.node), str(after.node)) == ("serial/by-id/x", "char 240:0", "char 240:1")


def test_watches_link_targets(dev):
    dev.link("serial/by-id/x", "../../bus/ttyUSB0")
    driver = dev.drive("serial/by-id/x")
    assert first_list(dev, driver) == set()
    dev.node("bus/ttyUSB0", 0)
    until(dev, driver, "serial/by-id/x")
    (dev.path / "bus/ttyUSB0").unlink()
    until(dev, driver)


def test_only_names_that_matter_are_told(dev):
    driver = dev.drive("ttyUSB*")
    driver.devices()
    told = dev.recorder.changes
    for number in range(100):
        dev.node(f"dm-{number}", number)
    dev.node("ttyUSB0", 200)
    driver.close()
    assert dev.recorder.changes == told + 1


def test_nothing_is_told_after_close(dev):
    driver = dev.drive("ttyUSB*")
    driver.devices()
    driver.close()
    told = dev.recorder.changes
    dev.node("ttyUSB0", 0)
    assert healthy(driver) == {"ttyUSB0"}
    assert dev.recorder.changes == told
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("chardev")]


def test_an_overflowing_queue_counts_as_a_change(dev):
    """The event of the node itself is lost: only the overflow can tell."""
    listed, first, go_on, again = (threading.Event() for _ in range(4))

    def changed():
        if not listed.is_set():
            return
        if first.is_set():
            again.set()
        first.set()
        go_on.wait()

    plain = dev.context
    context = Context(plain.resource, plain.node_name, plain.log, changed)
    driver = CharDevices(CharDevices.Options(paths=("/dev/ttyUSB*",), dev=str(dev.path)), context)
    driver.devices()
    listed.set()
    dev.node("ttyUSB0", 0)
    assert first.wait(20)
    for _ in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) // 2 + 1):
        dev.link("unrelated", "x").unlink()
    dev.node("ttyUSB1", 1)
    assert not again.is_set()
    go_on.set()
    assert again.wait(30)
    driver.close()


@pytest.fixture
def console():
    """The number of a virtual terminal that isn't allocated."""
    if not Path("/dev/tty0").exists():
        pytest.skip("this kernel has no virtual terminals (CONFIG_VT)")
    with Path("/dev/tty0").open("rb", buffering=0) as tty:
        fcntl.flock(tty, fcntl.LOCK_EX)  # or other tests that run now would take the same number
        number = next(n for n in range(60, 20, -1) if not Path(f"/dev/vcs{n}").exists())
        yield number
        if Path(f"/dev/vcs{number}").exists():
            disallocate(number)


def disallocate(number):
    """Again and again while busy: the kernel lets go of a terminal after its last close, on a thread of its own."""
    deadline = time.monotonic() + 20
    with Path("/dev/tty0").open("rb", buffering=0) as tty:
        while True:
            try:
                return fcntl.ioctl(tty, VT_DISALLOCATE, number)
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                os.sched_yield()


def test_the_kernels_own_hotplug(dev, console):
    """Opening a virtual terminal makes the kernel add device nodes; freeing it removes them."""
    driver = dev.drive(f"vcs*{console}", f"vcsa{console}", exclude=(f"/dev/vcsu{console}",), dev="/dev")
    assert first_list(dev, driver) == set()
    try:
        os.close(os.open(f"/dev/tty{console}", os.O_RDWR | os.O_NOCTTY))
    except PermissionError:
        pytest.fail(f"opening /dev/tty{console} isn't permitted: this test needs to run as root")
    until(dev, driver, f"vcs{console}", f"vcsa{console}")
    devices = {device.id: str(device.node) for device in driver.devices()}
    assert devices == {f"vcs{console}": f"char 7:{console}", f"vcsa{console}": f"char 7:{128 + console}"}
    disallocate(console)
    until(dev, driver)
    assert [device.id for device in driver.devices()] == [f"vcsa{console}"]
