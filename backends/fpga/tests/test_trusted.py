"""Whoever can write a directory above a file can put another file in its place."""

import os
from pathlib import Path

import pytest
from dpgateway_fpga.trusted import read_file, trusted_directory

from dpgateway import DriverError
from tests.support.counting import leading_to


@pytest.fixture
def deep(tmp_path):
    """A directory four levels below the one that tests spoil."""
    deep = tmp_path / "above/a/b/c"
    deep.mkdir(parents=True)
    return deep


def test_descriptor_ends_with_the_block(deep):
    (deep / "file").touch()

    for _ in range(20):
        with trusted_directory(deep) as directory:
            assert os.path.samestat(os.stat("file", dir_fd=directory), (deep / "file").stat())
        with trusted_directory(Path("/")) as directory:
            assert os.path.samestat(os.fstat(directory), Path("/").stat())
    assert not leading_to(deep)


@pytest.mark.parametrize("level", ["above", "above/a", "above/a/b", "above/a/b/c"])
@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_refuses_writable_directories(tmp_path, deep, level, mode):
    (tmp_path / level).chmod(mode)
    why = (
        rf"^expected a directory {tmp_path / level} that only its owner can write \(chmod go-w\), found mode 0{mode:o}$"
    )
    with pytest.raises(DriverError, match=why), trusted_directory(deep):
        pass


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o1777, 0o1775])
def test_trusts_sticky_directories(tmp_path, deep, mode):
    (tmp_path / "above").chmod(mode)
    with trusted_directory(deep) as directory:
        assert os.path.samestat(os.fstat(directory), deep.stat())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")
def test_a_strangers_directory_is_refused(tmp_path, deep):
    os.chown(tmp_path / "above/a", 12345, -1)
    why = f"^expected a directory {tmp_path}/above/a owned by root or by user 0, found user 12345$"
    with pytest.raises(DriverError, match=why), trusted_directory(deep):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_whoever_runs_the_gateway_trusts_root():
    os.seteuid(12345)
    try:
        with trusted_directory(Path("/usr")) as directory:
            assert os.fstat(directory).st_uid == 0
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("level", ["above", "above/a/b/c"])
def test_no_link_is_followed(tmp_path, deep, level):
    (tmp_path / level).rename(tmp_path / "real")
    (tmp_path / level).symlink_to(tmp_path / "real")
    why = f"^expected a directory at {tmp_path / level}, found a symbolic link: name the path that it leads to$"
    with pytest.raises(DriverError, match=why), trusted_directory(deep):
        pass


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").touch()
    why = f"^expected a directory at {tmp_path}/file$"
    with pytest.raises(DriverError, match=why), trusted_directory(tmp_path / "file"):
        pass


def test_relative_path_is_refused(deep, monkeypatch):
    """The directories above the working directory would be unchecked."""
    monkeypatch.chdir(deep.parent)
    with pytest.raises(DriverError, match=r"^expected an absolute path, found c$"), trusted_directory(Path(deep.name)):
        pass


def test_absent_directory_is_oserror(tmp_path):
    with pytest.raises(FileNotFoundError), trusted_directory(tmp_path / "absent/b"):
        pass


def test_directory_is_no_file(tmp_path):
    with pytest.raises(OSError, match=f"Is a directory: '{tmp_path}'"):
        read_file(tmp_path, 10)
    assert not leading_to(tmp_path)
