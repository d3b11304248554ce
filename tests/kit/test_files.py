import os

import pytest

from dpgateway.kit.files import NotAFileError, TooLongError, at_once, make_private, read, write


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def make_link(path):
    path.with_name("other").write_bytes(b"other")
    path.symlink_to(path.with_name("other"))


def test_a_file_is_read_whole_with_what_is_known_of_it(path):
    path.write_bytes(b"123")
    content, status = read(path, 3)
    assert content == b"123"
    assert os.path.samestat(status, path.stat())
    assert (status.st_size, status.st_mtime_ns) == (3, path.stat().st_mtime_ns)


def test_a_file_longer_than_it_may_be_is_refused(path):
    path.write_bytes(b"12345")
    with pytest.raises(TooLongError, match=f"^{path}: expected at most 3 bytes, found 5$"):
        read(path, 3)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.mknod(path, 0o20666, os.makedev(1, 5))])
def test_what_is_no_file_is_refused_and_not_waited_for(path, make):
    make(path)
    with pytest.raises(NotAFileError, match=f"^{path}: expected a regular file, found mode "):
        read(path, 3)


def test_a_link_is_followed_only_if_that_is_asked_for(path):
    make_link(path)
    with pytest.raises(OSError, match="symbolic link"):
        read(path, 10)
    assert read(path, 10, follow=True).content == b"other"


def test_a_check_comes_before_the_content(path):
    path.write_bytes(b"12345")

    def check(status):
        raise PermissionError(status.st_size)

    with pytest.raises(PermissionError, match="5"):
        read(path, 3, check)


def test_a_file_with_nothing_to_read_yet():
    """As /proc/kmsg does."""
    ours, theirs = os.pipe2(os.O_NONBLOCK)
    with os.fdopen(ours, "rb") as stream:
        with pytest.raises(BlockingIOError, match="nothing to read yet"):
            at_once(stream, 10)
        os.write(theirs, b"now")
        os.close(theirs)
        assert at_once(stream, 10) == b"now"


def test_a_file_is_replaced_as_a_whole(path):
    path.write_bytes(b"before")
    before = path.open("rb")
    with before:
        write(path, b"after")
        assert before.read() == b"before"
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_is_replaced_and_not_followed(path):
    make_link(path)
    write(path, b"after", sync=False)
    assert not path.is_symlink()
    assert path.with_name("other").read_bytes() == b"other"


def test_what_cannot_be_written_leaves_everything_as_it_was(path):
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        write(path, b"after")
    assert list(path.parent.iterdir()) == [path]


def test_a_private_directory(tmp_path):
    directory = tmp_path / "a" / "b"
    make_private(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    make_private(directory)
    directory.chmod(0o777)
    with pytest.raises(PermissionError, match="nobody else may write there"):
        make_private(directory)
