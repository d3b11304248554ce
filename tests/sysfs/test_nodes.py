import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgateway.sysfs import DevNode, DevTree, NoNode, OutsideError

names = st.sampled_from(["a", "b", "c", "..", ".", ""])
targets = st.lists(names, min_size=1, max_size=4).map("/".join).filter(lambda path: path and path[0] != "/")


@given(links=st.dictionaries(st.sampled_from(["a/b", "a/c", "c", "b"]), targets), path=targets)
def test_follows_as_the_kernel(links, path):
    with tempfile.TemporaryDirectory() as above:
        dev = Path(above, "dev")
        (dev / "a").mkdir(parents=True)
        for name, target in links.items():
            (dev / name).symlink_to(target)
        try:
            real = DevTree(str(dev)).follow(path)
        except (OutsideError, OSError):
            return
        assert str(dev / real).rstrip("/") == os.path.realpath(dev / path)


def test_absolute_link_means_host_dev(dev):
    dev.node("ttyUSB3", 3)
    dev.link("serial/by-id/modem", "/dev/ttyUSB3")
    assert DevTree(str(dev.path)).look("serial/by-id/modem", "char") == DevNode("char", 240, 3)


def test_notes_on_what_the_answer_depended(dev):
    dev.node("bus/ttyUSB3", 3)
    dev.link("serial/by-id/modem", "../../gsm")
    dev.link("gsm", "bus/ttyUSB3")
    tree = DevTree(str(dev.path))
    tree.look("serial/by-id/modem", "char")
    found = {os.path.relpath(path, dev.path): interest.names for path, interest in tree.directories.items()}
    assert found == {".": {"serial", "gsm", "bus"}, "serial": {"by-id"}, "serial/by-id": {"modem"}, "bus": {"ttyUSB3"}}


def test_tells_char_from_block(dev):
    dev.node("disk", 5, stat.S_IFBLK)
    assert DevTree(str(dev.path)).look("disk", "block") == DevNode("block", 240, 5)
    assert DevTree(str(dev.path)).look("disk", "char") == NoNode(
        "expected a char device at /dev/disk, found a block device; type: any takes both"
    )


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "no such device node: /dev/x"),
        (lambda path: path.write_text("AT\n"), "expected a char device at /dev/x, found a regular file"),
        (lambda path: path.mkdir(), "expected a char device at /dev/x, found a directory"),
        (os.mkfifo, "expected a char device at /dev/x, found a pipe"),
        (lambda path: path.symlink_to("y"), "no such device node: /dev/x is a link to 'y', which is absent"),
        (lambda path: path.symlink_to("/proc/self/fd/0"), "/dev/x leads outside /dev, to '/proc/self/fd/0'"),
        (lambda path: path.symlink_to("/devil/x"), "/dev/x leads outside /dev, to '/devil/x'"),
        (lambda path: path.symlink_to("../dev/null"), "/dev/x leads outside /dev"),
        (lambda path: path.symlink_to("/dev/../dev/null"), "/dev/x leads outside /dev"),
    ],
)
def test_what_is_no_node_says_why(dev, make, reason):
    make(dev.path / "x")
    assert DevTree(str(dev.path)).look("x", "char") == NoNode(reason)


def test_file_on_the_way_is_absent(dev):
    (dev.path / "serial").write_text("")
    assert DevTree(str(dev.path)).look("serial/x", "char") == NoNode("no such device node: /dev/serial/x")


def test_links_in_a_circle_end(dev):
    dev.link("x", "y")
    dev.link("y", "x")
    reason = "can't look at /dev/x: Too many levels of symbolic links"
    assert DevTree(str(dev.path)).look("x", "char") == NoNode(reason, unknown=True)


def test_as_many_links_as_the_kernel_follows(dev):
    dev.node("0", 3)
    for number in range(1, 42):
        dev.link(str(number), str(number - 1))
    assert (dev.path / "40").is_char_device()
    assert DevTree(str(dev.path)).look("40", "char") == DevNode("char", 240, 3)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        (dev.path / "41").stat()
    reason = "can't look at /dev/41: Too many levels of symbolic links"
    assert DevTree(str(dev.path)).look("41", "char") == NoNode(reason, unknown=True)
