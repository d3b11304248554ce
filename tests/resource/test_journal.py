"""What was given away is known after a restart, whatever became of the file meanwhile."""

import contextlib
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgateway.errors import KubeletError
from dpgateway.resource.front import Unreleased
from dpgateway.resource.journal import Journal, entries_of_others, from_json, to_json
from tests.support.counting import leading_to

THING = "example.com/thing"
CLAIMS = {
    "a": Unreleased("26:3:1700000000123456", frozenset(["1", "2"]), frozenset(["char 188:0"]), 17, "ttyUSB0"),
    "b::1": Unreleased(""),
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "state", tmp_path / "device-plugins", THING)


def test_what_is_saved_is_loaded(journal):
    journal.save(CLAIMS)
    assert journal.load() == CLAIMS
    assert journal.path.stat().st_mode & 0o777 == 0o600
    assert journal.path.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in journal.path.parent.iterdir()] == [journal.path.name]


def test_nothing_unreleased_leaves_no_file(journal):
    assert journal.load() == {}
    journal.save({})
    journal.save(CLAIMS)
    journal.save({})
    assert list(journal.path.parent.iterdir()) == []
    assert journal.load() == {}


def test_a_file_for_each_resource_and_kubelet(journal, tmp_path):
    journal.save(CLAIMS)
    assert Journal(journal.path.parent, tmp_path / "device-plugins", "example.com/other").load() == {}
    assert Journal(journal.path.parent, tmp_path / "another", THING).load() == {}


def test_a_file_that_was_not_finished_changes_nothing(journal):
    journal.save(CLAIMS)
    journal.path.with_suffix(".new").write_bytes(b"{")
    assert journal.load() == CLAIMS
    journal.save({"a": Unreleased("")})
    assert journal.load() == {"a": Unreleased("")}


def test_nothing_is_written_where_others_may_write(journal):
    journal.path.parent.mkdir(mode=0o700)
    journal.path.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="nobody else may write there"):
        journal.save(CLAIMS)
    assert journal.load() == {}


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_nothing_but_a_file_is_read(journal, kind):
    journal.path.parent.mkdir(mode=0o700)
    if kind == "link":
        journal.path.symlink_to("/etc/hostname")
    elif kind == "pipe":
        os.mkfifo(journal.path)
    else:
        journal.path.mkdir()
    with pytest.raises((KubeletError, OSError), match=str(journal.path)):
        journal.load()
    assert not leading_to(journal.path)


def test_a_file_of_more_than_32_mib_is_refused(journal):
    journal.save(CLAIMS)
    raw = journal.path.read_bytes().ljust(32 << 20)
    journal.path.write_bytes(raw)
    assert journal.load() == CLAIMS
    journal.path.write_bytes(raw + b" ")
    with pytest.raises(KubeletError, match="expected at most 33554432 bytes"):
        journal.load()


SETS = st.frozensets(TEXTS)


@given(
    st.dictionaries(
        TEXTS, st.builds(Unreleased, TEXTS | st.just(""), SETS, SETS, st.none() | st.integers(0, 2**36 - 1))
    )
)
def test_every_entry_comes_back(unreleased):
    assert from_json(to_json(unreleased, THING), THING, "path") == unreleased


def test_a_file_cut_short_is_an_error_that_names_it():
    raw = to_json(CLAIMS, THING)
    for length in range(len(raw)):
        with pytest.raises(KubeletError, match=r"^/state/x\.json: not a journal that this gateway wrote"):
            from_json(raw[:length], THING, "/state/x.json")


@given(st.integers(0), st.integers(0, 7))
def test_a_flipped_bit_is_never_a_crash(where, bit):
    raw = bytearray(to_json(CLAIMS, THING))
    raw[where % len(raw)] ^= 1 << bit
    with contextlib.suppress(KubeletError):
        from_json(bytes(raw), THING, "path")


def test_entries_without_a_time():
    assert from_json(json.dumps(told()).encode(), THING, "path") == {"a": Unreleased("", frozenset("1"))}


def told(**changed):
    return {"version": 1, "resource": THING, "claims": {"a": {"kubelet": "", "pods": ["1"], "hardware": []}}, **changed}


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        told(version=2),
        told(resource="example.com/other"),
        told(claims=None),
        told(claims={"a": None}),
        told(claims={"": {"kubelet": "", "pods": [], "hardware": []}}),
        told(claims={"\ud800": {"kubelet": "", "pods": [], "hardware": []}}),
        told(claims={"a": {"kubelet": None, "pods": [], "hardware": []}}),
        told(claims={"a": {"kubelet": 1.0, "pods": [], "hardware": []}}),
        told(claims={"a": {"kubelet": "", "pods": "12", "hardware": []}}),
        told(claims={"a": {"kubelet": "", "pods": [1], "hardware": []}}),
        told(claims={"a": {"kubelet": "", "pods": []}}),
        told(claims={"a": {"kubelet": "", "pods": [], "hardware": [], "since": "1"}}),
        told(claims={"a": {"kubelet": "", "pods": [], "hardware": [], "since": 2**36}}),
        told(claims={"a": {"kubelet": "", "pods": [], "hardware": [], "since": -1}}),
    ],
)
def test_what_no_gateway_wrote(document):
    with pytest.raises(KubeletError):
        from_json(json.dumps(document).encode(), THING, "path")


def test_entries_of_other_resources(journal, tmp_path):
    state, plugins = journal.path.parent, tmp_path / "device-plugins"
    journal.save(CLAIMS)
    Journal(state, plugins, "example.com/gone").save({"a": Unreleased("")})
    Journal(state, tmp_path / "another", "example.com/another").save(CLAIMS)
    (state / "a-drivers.json").write_text("{}")
    assert entries_of_others(state, plugins, [THING]) == ({"example.com/gone": {"a": Unreleased("")}}, [])
    assert entries_of_others(state, plugins, [])[0].keys() == {THING, "example.com/gone"}
    assert entries_of_others(tmp_path / "none", plugins, [THING]) == ({}, [])


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"resource": 1}', b"[" * 100_000, b"\xff"])
def test_one_damaged_file_hides_no_other(journal, tmp_path, raw):
    state, plugins = journal.path.parent, tmp_path / "device-plugins"
    journal.save(CLAIMS)
    (state / "0123456789abcdef.json").write_bytes(raw)
    found, complaints = entries_of_others(state, plugins, [])
    assert found == {THING: CLAIMS}
    assert all(complaint.startswith(f"{state}/0123456789abcdef.json: ") for complaint in complaints)
    assert len(complaints) == (raw != b'{"resource": 1}')  # that one is of another kubelet
