"""1,000 times plugged and unplugged: no change is lost, and nothing is left."""

import gc
import os
import threading

from dpgateway.testing import Recorder
from tests.support.counting import inotify_watches, opened

CYCLES = 300


def left():
    """Threads and open files of this process, and watches of its inotify instances."""
    watches = {(instance, watch) for instance, each in inotify_watches().items() for watch in each}
    return {*threading.enumerate(), *opened().items(), *watches}


def test_notices_each_cycle_of_a_node(dev):
    driver = dev.drive("ttyUSB*", "bus/*/gps")

    def until(expected):
        """The driver is asked only when it has said that something changed, as the gateway does."""
        while True:
            assert dev.recorder.changed.wait(20), f"no change was told, expected {expected}"
            dev.recorder.changed.clear()
            if [one.id for one in driver.devices()] == expected:
                return

    def cycle(number):
        """Each tenth time in a directory that comes and goes, too."""
        name = "ttyUSB0" if number % 10 else f"bus/{number}/gps"
        path = dev.node(name, number // 150)  # another number each time would be a line in the log, which pytest keeps
        until([name])
        path.unlink()
        until([])
        if path.parent != dev.path:
            path.parent.rmdir()

    driver.devices()
    dev.recorder.changed.clear()
    for number in range(CYCLES // 10):
        cycle(number)
    gc.collect()
    before, objects = left(), len(gc.get_objects())
    for number in range(CYCLES // 10, CYCLES):
        cycle(number)
    gc.collect()
    assert not left() - before  # what an earlier test left may end meanwhile
    assert len(gc.get_objects()) - objects < CYCLES // 10


def test_last_of_many_changes_counts(tree, drive):
    """Nobody waits for a look between them, as when a plug has a bad contact."""
    recorder = Recorder()
    tree.write("""
        /sys/devices/a/uevent = MAJOR=240\\nMINOR=1\\nDEVNAME=a
        /sys/class/x/a -> /sys/devices/a
    """)
    driver = drive({"subsystem": "x"}, recorder)
    driver.devices()
    before, path = left(), tree.at("/dev/a")
    looks, last = 0, threading.Event()

    def shake():
        for _ in range(CYCLES):
            os.mknod(path, 0o20600, os.makedev(240, 1))
            path.unlink()
        last.set()
        os.mknod(path, 0o20600, os.makedev(240, 1))

    thread = threading.Thread(target=shake)
    thread.start()

    def healthy():
        nonlocal looks
        looks += 1
        is_last = last.is_set()
        (device,) = driver.devices()
        return is_last and device.health.ok

    assert recorder.until(healthy)
    thread.join()
    assert looks < CYCLES, "several changes in a row are one"
    assert not left() - before  # what an earlier test left may end meanwhile
