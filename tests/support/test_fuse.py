"""What still hangs when a file system ends harms nobody who comes later."""

import os
import subprocess
import threading

import pytest

from tests.support.fuse import Directory, File, mounted


class Hanging(File):
    def __init__(self):
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def read(self):
        self.thread = threading.current_thread()
        self.asked.set()
        self.goes_on.wait(60)
        return "too late"


def test_a_late_answer_goes_to_no_other_file(tmp_path):
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("only root can mount a file system of its own")
    hanging = Hanging()
    with mounted(Directory(file=hanging), tmp_path):
        reader = subprocess.Popen(["cat", tmp_path / "file"], stderr=subprocess.DEVNULL)
        assert hanging.asked.wait(60)
    assert reader.wait(60) == 1
    others = [os.memfd_create(f"other-{number}") for number in range(100)]  # one has the number of /dev/fuse
    hanging.goes_on.set()
    hanging.thread.join(60)
    sizes = [os.fstat(other).st_size for other in others]
    for other in others:
        os.close(other)
    assert set(sizes) == {0}
