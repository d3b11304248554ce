import dataclasses
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpgateway.sysfs import Look, NoValue, Object, Roots, Value

P = "devices/pci0000:00/0000:3b:00.0"
MISSING = NoValue.missing()


@pytest.fixture
def function(tree):
    """A PCI function, and its other one, of which it is a virtual one."""
    tree.write(
        f"""
        /sys/{P}/vendor = 0x8086
        /sys/{P}/rom.u.1/VBNV = second
        /sys/{P}/rom.u.2/VBNV = third
        /sys/{P}/rom.u.0/
        /sys/{P}/empty =
        /sys/{P}/driver -> /sys/bus/pci/drivers/vfio-pci
        /sys/{P}/iommu_group -> /sys/kernel/iommu_groups/45
        /sys/{P}/physfn -> /sys/devices/pci0000:00/0000:3a:00.0
        /sys/devices/pci0000:00/0000:3a:00.0/driver -> /sys/bus/pci/drivers/i40e
        /sys/devices/pci0000:00/0000:3a:00.0/net/eth1/
        /sys/bus/pci/devices/0000:3b:00.0 -> /sys/{P}
    """
    )
    tree.at(f"/sys/{P}/rom.u.0/above").symlink_to("..")
    return Object(P)


def test_sysfs_that_is_elsewhere_is_no_empty_one(tmp_path):
    (tmp_path / "sys").mkdir()
    assert list(Look(Roots(sysfs=f"{tmp_path}/sys")).objects("pci")) == []
    with pytest.raises(FileNotFoundError, match=f"No such file or directory: '{tmp_path}/host/sys'"):
        list(Look(Roots(sysfs=f"{tmp_path}/host/sys")).objects("pci"))


def test_objects_of_bus_and_class(tree, roots, function):
    tree.write(f"""
        /sys/class/drm/card0 -> /sys/{P}/drm/card0
        /sys/{P}/drm/card0/
        /sys/class/drm/version = drm 1.1.0
        /sys/class/drm/gone -> /sys/devices/gone
    """)
    tree.at("/sys/class/drm/out").symlink_to("/etc")
    look = Look(roots)
    assert list(look.objects("pci")) == [function]
    assert list(look.objects("drm")) == [Object(f"{P}/drm/card0")]
    assert list(look.objects("p?i|drm")) == list(look.objects("pci|drm")) == [function, Object(f"{P}/drm/card0")]
    assert list(look.objects("usb")) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("vendor", "0x8086"),
        ("empty", ""),
        ("absent", MISSING),
        ("vendor/x", MISSING),
        ("driver", "vfio-pci"),
        ("iommu_group", "45"),
        ("physfn/driver", "i40e"),
        ("rom*/VBNV", "second"),
        ("rom*/absent", MISSING),
        ("physfn", "0000:3a:00.0"),
        ("rom.u.0/above", "0000:3b:00.0"),
        ("rom.u.1", NoValue("is no regular file")),
    ],
)
def test_a_value(roots, function, path, value):
    assert Look(roots).value(function, path) == value


def test_entries_are_ordered(roots, function):
    look = Look(roots)
    assert look.entries(function, "rom*") == ("rom.u.0", "rom.u.1", "rom.u.2")
    assert look.entries(function, "physfn/net/*") == ("physfn/net/eth1",)
    assert look.entries(function, "uio/*") == ()


def test_unreadable_is_not_absent(tree, roots, function):
    here = tree.at(f"/sys/{P}")
    (here / "binary").write_bytes(b"\xff\xfe")
    (here / "nul").write_bytes(b"a\0b")
    (here / "huge").write_bytes(b"x" * 70000)
    os.mkfifo(here / "pipe")
    (here / "out").symlink_to("../../../../../../etc/passwd")
    (here / "elsewhere").symlink_to("/etc")
    (here / "loop").symlink_to("loop")
    look = Look(roots)
    expected = {
        "binary": "isn't UTF-8 text",
        "nul": "isn't text: it has a NUL character",
        "huge": "is longer than 65536 bytes",
        "pipe": "is no regular file",
        "elsewhere/passwd": f"/sys/{P}/elsewhere leads outside /sys, to '/etc'",
        "loop/x": "can't be reached: Too many levels of symbolic links",
    }
    for path, reason in expected.items():
        assert look.value(function, path) == NoValue(reason)
    assert look.value(function, "out") == "passwd", "the name at the end of a link, which is never followed"
    assert look.entries(function, "elsewhere/*") == look.entries(function, "loop/*") == ()


def test_look_is_a_snapshot(tree, roots, function):
    look = Look(roots)
    assert look.value(function, "vendor") == "0x8086"
    tree.write(f"/sys/{P}/vendor = 0x10de")
    assert look.value(function, "vendor") == "0x8086"
    assert Look(roots).value(function, "vendor") == "0x10de"


def test_an_objects_name_and_number():
    wq = Object("devices/dsa0/wq0.12/dsa!wq0.12")
    assert (wq.kernel, wq.number) == ("dsa/wq0.12", "12")
    assert Object("devices/virtual/misc/kvm").number == ""
    assert [one.kernel for one in Object(P).line] == ["0000:3b:00.0", "pci0000:00"]
    assert Object("devices").line == ()


def test_deepest_object():
    assert len(Object("devices" + "/x" * 2000).line) == 2000


@pytest.mark.parametrize(
    ("uevent", "subsystem", "file"),
    [
        ("MAJOR=188\\nMINOR=3", "tty", "c188:3"),
        ("MAJOR=8\\nMINOR=0", "block", "b8:0"),
        ("IFINDEX=2", "net", "n2"),
        ("DRIVER=x", "pci", "+pci:0000:3b:00.0"),
    ],
)
def test_what_udev_has_found_out(tree, roots, uevent, subsystem, file):
    function = Object(P)
    tree.write(f"""
        /sys/{P}/uevent = {uevent}\\nDEVTYPE=kernels
        /sys/{P}/subsystem -> /sys/class/{subsystem}
        /run/udev/data/{file} = S:serial/by-id/x\\nE:ID_SERIAL_SHORT=A1\\nE:DEVTYPE=udevs\\nG:seat
    """)
    look = Look(roots)
    assert look.env(function, "DEVTYPE") == "kernels"
    assert look.trace.directories == {}, "udev wasn't asked"
    assert look.env(function, "ID_SERIAL_SHORT") == "A1"
    assert look.env(function, "ID_MODEL") == look.env(function, "seat") == MISSING
    assert "c1:3" in look.trace.directories[f"{roots.udev}/data"]


def test_reads_files_without_size(roots):
    """As those of /proc, which give a page at a time (fs/seq_file.c): this one has a line for each library."""
    waiting = [sys.executable, "-c", "import asyncio, ctypes; print(flush=True); input()"]  # ours may have too many
    with subprocess.Popen(waiting, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        value = Look(dataclasses.replace(roots, sysfs="/proc")).value(Object(str(child.pid)), "maps")
        expected = Path(f"/proc/{child.pid}/maps").read_text().splitlines()
        child.kill()
    assert 4096 < len("".join(expected)) < 65536
    assert str(value).splitlines()[-1] == expected[-1]


texts = st.binary(max_size=40) | st.just(b"x" * 70000)
steps = st.sampled_from(["a", "b", "..", "/sys/a", "/etc", "a/b", "."])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    files=st.dictionaries(st.sampled_from(["a", "b", "c"]), texts | steps | st.none(), max_size=3),
    paths=st.lists(st.sampled_from(["a", "b", "c", "a/b", "b/a/c", "*", "?/*", "*/*/a", "[ab]/uevent"]), max_size=4),
)
def test_hostile_trees_stay_inside(tmp_path_factory, files, paths):
    """Files of anything, links to anywhere and in circles, and directories."""
    here = tmp_path_factory.mktemp("sys") / "devices"
    here.mkdir()
    for name, content in files.items():
        if content is None:
            (here / name).mkdir()
        elif isinstance(content, str):
            (here / name).symlink_to(content)
        else:
            (here / name).write_bytes(content)
    look, thing = Look(Roots(sysfs=str(here.parent))), Object("devices")
    outside = {path.name for path in Path("/etc").iterdir()}
    for path in paths:
        value = look.value(thing, path)
        assert isinstance(value, str | NoValue)
        assert look.value(thing, path) == value
        assert not outside & {entry.rpartition("/")[2] for entry in look.entries(thing, path)}
    list(look.objects("*"))
    assert look.env(thing, "x") == MISSING


def test_changing_tree_has_values(tree, roots):
    """A file, a link, a directory and nothing take turns under one name."""
    here = tree.at("/sys/devices/a")
    here.mkdir()
    done = threading.Event()

    def change():
        while not done.is_set():
            (here / "x").write_text("1\n")
            (here / "x").unlink()
            (here / "x").symlink_to("../b")
            (here / "x").unlink()
            (here / "x").mkdir()
            (here / "x").rmdir()

    thread = threading.Thread(target=change)
    thread.start()
    found: set[Value] = set()
    try:
        for _ in range(300):
            look, thing = Look(roots), Object("devices/a")
            found |= {look.value(thing, "x"), look.value(thing, "x/y")}
            assert set(look.entries(thing, "*")) <= {"x"}
            assert list(look.objects("*")) == []
    finally:
        done.set()
        thread.join()
    texts = {value for value in found if isinstance(value, str)}
    assert texts <= {"1", "b", ""}
