"""Fake files of the host."""

from pathlib import Path

from dpgateway.testing import FakeTree


def test_a_files_text_may_have_an_arrow(tmp_path: Path) -> None:
    tree = FakeTree(tmp_path)
    tree.write("""
        /sys/devices/a/mode = in -> out
        /sys/class/a -> /sys/devices/a
    """)
    assert tree.at("/sys/class/a/mode").read_text() == "in -> out\n"
