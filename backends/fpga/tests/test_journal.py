"""What is in the journal's directory and isn't what the driver wrote says nothing, and holds nobody up."""

import json
import os
from dataclasses import asdict, replace
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


EARLIER = sorted((Path(__file__).parent / "earlier").glob("*.json"))
"""One for each form of the entry, the newest last. A release adds one for each form that it introduces."""


@pytest.mark.parametrize("path", EARLIER, ids=lambda path: path.name)
def test_an_entry_of_an_earlier_release(journal, path):
    """Nothing is known of a life that isn't written."""
    (journal.state_dir / "b.json").write_text(path.read_text().replace("BOOT", journal.boot))
    expected = BoardRecord("loaded", "aes", "ab" * 32, "example.com/aes", 1700000100, journal.boot, "0f1e2d3c")
    life = json.loads(path.read_bytes()).get("life")
    assert journal.read("b", 7) == replace(expected, life=life)


def test_the_newest_entry_is_as_it_is_written_now(journal):
    assert json.loads(EARLIER[-1].read_bytes()).keys() == asdict(journal.read("b")).keys()
