"""The simulated boards' files lead to nobody else's."""

import json

import pytest
from dpgateway_fpga.bitstream import Image
from dpgateway_fpga.programmers import BoardState
from dpgateway_fpga.programmers.simulated import SimulatedProgrammer

from dpgateway import DriverError

IMAGE = Image(b"x", "ab" * 32)


@pytest.fixture
def board(options):
    return options.boards[0]


@pytest.fixture
def programmer(options):
    return SimulatedProgrammer(options.simulated)


@pytest.fixture
def state_dir(options):
    options.simulated.state_dir.mkdir()
    return options.simulated.state_dir


@pytest.fixture
def victim(tmp_path):
    file = tmp_path / "victim"
    file.write_text("mine")
    return file


@pytest.mark.parametrize("name", [".fpga-a.json.new", "fpga-a.json"])
def test_replaces_links_in_state(programmer, board, state_dir, victim, name):
    (state_dir / name).symlink_to(victim)
    programmer.program(board, IMAGE, print)
    assert victim.read_text() == "mine"
    assert json.loads((state_dir / "fpga-a.json").read_text()) == {"state": "loaded", "sha256": IMAGE.sha256}
    assert [file.name for file in state_dir.iterdir() if not file.is_symlink()] == ["fpga-a.json"]
    assert programmer.read(board) == BoardState("loaded", IMAGE.sha256, operating=True)


def test_replaces_leftovers(programmer, board, state_dir):
    (state_dir / ".fpga-a.json.new").write_text("{")
    programmer.program(board, IMAGE, print)
    assert programmer.read(board) == BoardState("loaded", IMAGE.sha256, operating=True)
    assert [file.name for file in state_dir.iterdir()] == ["fpga-a.json"]


def test_distrusts_writable_state(programmer, board, state_dir):
    programmer.program(board, IMAGE, print)
    state_dir.chmod(0o777)
    assert programmer.read(board) == BoardState("unknown")
    with pytest.raises(DriverError, match=f"^expected a directory {state_dir} that only its owner can write"):
        programmer.program(board, Image(b"y", "cd" * 32), print)
    state_dir.chmod(0o700)
    assert programmer.read(board) == BoardState("loaded", IMAGE.sha256, operating=True)


def test_refuses_linked_state(programmer, board, state_dir, tmp_path):
    state_dir.rmdir()
    (tmp_path / "elsewhere").mkdir()
    state_dir.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DriverError, match=f"^expected a directory at {state_dir}, found a symbolic link"):
        programmer.program(board, IMAGE, print)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_makes_private_state(programmer, board, options):
    programmer.program(board, IMAGE, print)
    assert options.simulated.state_dir.stat().st_mode & 0o777 == 0o700
    assert (options.simulated.state_dir / "fpga-a.json").stat().st_mode & 0o777 == 0o600
