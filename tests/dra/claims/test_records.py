"""What a record says, also one that an earlier gateway wrote."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from dpgateway.dra.claims.files import ClaimFiles
from dpgateway.dra.claims.holdings import ClaimHoldings
from dpgateway.dra.claims.records import ClaimRecord, Given, Phase, record

X, Y = "example.com/x", "example.com/y"
GIVEN = Given("r", X, "n1/x", (("a", "share"),), ("a",), ("k/c=a",), {"mode": 1}, admin=True, extended=X)
RECORD = ClaimRecord("u", "default", "c", Phase.PREPARED, "boot", (GIVEN,), (("p", "pod"),), 7, "dra.example.com")
SINCE = ['"since": 1e400', '"since": 1e17', '"since": -1', '"since": 1%s' % ("0" * 30), '"since": "7"']


def test_a_record_survives_its_file() -> None:
    for one in (RECORD, GIVEN):
        assert all(getattr(one, field.name) for field in fields(one)), "each field is filled"
    assert record(RECORD.to_json(), "u.json") == RECORD


def test_a_file_without_the_extended_resource() -> None:
    """Gateways before that field wrote it."""
    found = json.loads(RECORD.to_json())
    del found["given"][0]["extended"]
    (given,) = record(json.dumps(found), "u.json").given
    assert given == replace(GIVEN, extended="")


@pytest.mark.parametrize(
    "text",
    ["", "[" * 100_000, "{}", *(RECORD.to_json().replace('"since": 7', since) for since in SINCE)],
    ids=["empty", "brackets", "keys", *SINCE],
)
def test_a_file_that_is_no_record_is_damaged(tmp_path: Path, text: str) -> None:
    """An exception of another type would keep all claims of the node from being known."""
    files = ClaimFiles(tmp_path)
    files.all()
    (files.folder / "u.json").write_text(text)
    found, (damaged,) = files.look()
    assert (found, damaged.file) == ((), "u.json")
    assert not files.driver()


def of(uid: str, *given: Given, phase: Phase = Phase.PREPARED) -> ClaimRecord:
    return replace(RECORD, uid=uid, given=given, phase=phase)


def part(*ids: str, extended: str = X) -> Given:
    return Given(f"r-{ids[0]}", X, "n1/x", (), ids, extended=extended)


def test_the_pods_that_the_scheduler_counts() -> None:
    claims = [of("1", part("a")), of("2", part("b", extended="")), of("3", part("c", extended=Y))]
    assert ClaimHoldings(resource=X).told(claims).counted == {"a": X, "c": Y}
    assert ClaimHoldings(resource=X).told(claims, "in doubt").counted == {}


def test_an_id_of_two_claims_is_counted_by_both() -> None:
    both = [of("1", part("a"), phase=Phase.ENDING), of("2", part("a"))]
    assert ClaimHoldings(resource=X).told(both).counted == {"a": X}
    both[0] = of("1", part("a", extended=""), phase=Phase.ENDING)
    assert ClaimHoldings(resource=X).told(both).counted == {}


@pytest.mark.parametrize(
    ("requests", "counted"),
    [
        (["a", "bc"], "bc"),
        (["a", "b"], "ab"),
        (["ab", "c", "d", "e"], "cde"),
        (["abc"], "abc"),
        (["ab", "cd", "e"], "abe"),
    ],
    ids=["an init container's", "two containers'", "an init container's that is smaller", "one", "any"],
)
def test_of_several_requests(requests: list[str], counted: str) -> None:
    """One of them may be an init container's: the scheduler counts that, or the others."""
    one = of("1", *[part(*ids) for ids in requests], part("z", extended=Y))
    assert ClaimHoldings(resource=X).told([one]).counted == {**dict.fromkeys(counted, X), "z": Y}
