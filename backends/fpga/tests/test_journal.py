"""What is in the journal's directory and isn't what the driver wrote says nothing, and holds nobody up."""

import os
from pathlib import Path

import pytest
from dpgateway_fpga.journal import BoardJournal, BoardRecord


@pytest.fixture
def journal(tmp_path):
    journal = BoardJournal(tmp_path / "state")
    journal.write("b", BoardRecord("loaded", "aes", "ab" * 32, "example.com/aes", 1, journal.boot))
    assert journal.read("b")
    return journal


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 60_000, b"\xff", b" " * 100_000 + b"{}"], ids=range(5))
def test_foreign_file_says_nothing(journal, content):
    (journal.state_dir / "b.json").write_bytes(content)
    assert journal.read("b") is None


def test_long_file_is_not_read(journal):
    os.truncate(journal.state_dir / "b.json", 1 << 40)
    assert journal.read("b") is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_pipe_is_not_waited_for(journal, make):
    (journal.state_dir / "b.json").unlink()
    make(journal.state_dir / "b.json")
    assert journal.read("b") is None


def test_a_link_to_an_entry_says_nothing(journal):
    (journal.state_dir / "b.json").rename(journal.state_dir / "other")
    (journal.state_dir / "b.json").symlink_to("other")
    assert journal.read("b") is None
