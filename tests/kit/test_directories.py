import os

import pytest

from dpgateway.kit.directories import at_once, read


def test_what_has_nothing_to_read_yet_is_an_error_of_the_system():
    """As /proc/kmsg, which calls itself a regular file."""
    ours, theirs = os.pipe2(os.O_NONBLOCK)
    with os.fdopen(ours, "rb") as stream:
        with pytest.raises(BlockingIOError, match="nothing to read yet"):
            at_once(stream, 10)
        os.write(theirs, b"now")
        os.close(theirs)
        assert at_once(stream, 10) == b"now"


def test_one_byte_more_than_the_longest_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read(tmp_path / "file", 3) == b"1234"
