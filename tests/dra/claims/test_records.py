"""What a record says, also one that an earlier gateway wrote."""

from __future__ import annotations

import json
from dataclasses import fields, replace

from dpgateway.dra.claims.holdings import ClaimHoldings
from dpgateway.dra.claims.records import ClaimRecord, Given, Phase, record

X, Y = "example.com/x", "example.com/y"
GIVEN = Given("r", X, "n1/x", (("a", "share"),), ("a",), ("k/c=a",), {"mode": 1}, admin=True, extended=X)
RECORD = ClaimRecord("u", "default", "c", Phase.PREPARED, "boot", (GIVEN,), (("p", "pod"),), 7, "dra.example.com")


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


def test_of_several_requests_the_largest_is_counted() -> None:
    """One of them may be an init container's, and the scheduler counts the larger one then."""
    one = of("1", part("a"), part("b", "c"), part("d", extended=Y))
    assert ClaimHoldings(resource=X).told([one]).counted == {"b": X, "c": X, "d": Y}
