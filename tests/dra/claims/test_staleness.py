"""Which records are stale, by all that can be known of their claims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpgateway.dra.claims.records import ClaimRecord, Given, Phase
from dpgateway.dra.claims.staleness import NodeEvidence, given_up, unused

DRIVER = "dra.example.com"
PODS = ("pod-1", "p"), ("pod-2", "q")
RECORD = ClaimRecord(
    "uid-1",
    "default",
    "c",
    Phase.PREPARED,
    "boot",
    (Given("r", "example.com/thing", "n1", (("a", ""),), ("a",)),),
    PODS,
)


def claim(uid: str = "uid-1", **result: str) -> Any:
    """The claim at the API server, with one result."""
    found = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "a", **result}
    return {"metadata": {"uid": uid}, "status": {"allocation": {"devices": {"results": [found]}}}}


@pytest.mark.parametrize(
    ("listed", "pods", "phase", "expected"),
    [
        ((), {"other"}, Phase.PREPARED, True),
        ((), {"other"}, Phase.PREPARING, True),
        ((), {"other"}, Phase.ENDING, False),  # its end goes on already
        ([("default", "c")], {"other"}, Phase.PREPARED, False),
        ([("default", "d"), ("other", "c")], {"other"}, Phase.PREPARED, True),
        ((), {"other", "pod-1"}, Phase.PREPARED, False),
        ((), {"other", "pod-2"}, Phase.PREPARED, False),  # it shares the claim
        (None, {"other"}, Phase.PREPARED, False),
        ((), None, Phase.PREPARED, False),
    ],
)
def test_a_claim_is_unused_if_all_that_the_node_tells_agrees(
    listed: Any, pods: Any, phase: Phase, expected: bool
) -> None:
    evidence = NodeEvidence(listed, None if pods is None else frozenset(pods))
    assert unused(replace(RECORD, phase=phase), evidence) is expected


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (None, "isn't there any more"),
        (claim("uid-2"), "was replaced"),
        ({"metadata": {"uid": "uid-1"}}, "isn't allocated"),
        ({"metadata": {"uid": "uid-1"}, "status": {"reservedFor": []}}, "isn't allocated"),
        (claim(), ""),
        (claim(device="b"), "other devices"),
        (claim(pool="n2"), "other devices"),
        (claim(driver="other"), "other devices"),
        (claim(shareID="1"), "other devices"),
    ],
    ids=["gone", "replaced", "new", "deallocated", "same", "other device", "other pool", "other driver", "a share"],
)
def test_the_api_server_gives_a_claim_up(found: Any, text: str) -> None:
    why = given_up(RECORD, found, DRIVER)
    assert text in why
    assert bool(why) is bool(text)


def test_a_claim_without_devices_of_ours_is_given_up_with_its_object_only() -> None:
    record = ClaimRecord("uid-1", "default", "c", Phase.PREPARED, "boot")
    assert given_up(record, claim(driver="other"), DRIVER) == ""
    assert given_up(record, None, DRIVER)
