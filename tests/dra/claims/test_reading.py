"""A claim's allocation as the API server has it, and what of it is ours."""

from __future__ import annotations

from typing import Any

import pytest

from dpgateway.dra.claims.reading import EXTENDED, Result, allocated
from dpgateway.errors import RequestError

DRIVER = "dra.example.com"
ASKED = "default", "c", "uid-1"


def claim(*results: Any, **status: Any) -> Any:
    return {"metadata": {"uid": "uid-1"}, "status": {"allocation": {"devices": {"results": results}}, **status}}


def result(device: str, request: str = "r", **more: Any) -> dict[str, Any]:
    return {"request": request, "driver": DRIVER, "pool": "n1", "device": device, **more}


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], []),
        ([result("a")], [Result("r", "n1", "a")]),
        ([result("x", driver="other"), result("a")], [Result("r", "n1", "a")]),
        ([result("a", "first"), result("b", "second")], [Result("first", "n1", "a"), Result("second", "n1", "b")]),
        ([result("a"), result("b")], [Result("r", "n1", "a"), Result("r", "n1", "b")]),
        ([result("a"), result("b", pool="n1/x")], [Result("r", "n1", "a"), Result("r", "n1/x", "b")]),
        ([result("a", "r/small")], [Result("r", "n1", "a", alternative="small")]),
        ([result("a", shareID="s", consumedCapacity={"shares": "2"})], [Result("r", "n1", "a", "s", 2)]),
        ([result("a", shareID="s", consumedCapacity={"shares": "1k"})], [Result("r", "n1", "a", "s", 1000)]),
        ([result("a", shareID="s", consumedCapacity={"memory": "1Gi"})], [Result("r", "n1", "a", "s", 1)]),
        ([result("a", adminAccess=True)], [Result("r", "n1", "a", admin=True)]),
        ([result("a", adminAccess=False, shareID=None)], [Result("r", "n1", "a")]),
    ],
)
def test_the_results_of_one_driver(results: Any, expected: Any) -> None:
    assert list(allocated(claim(*results), DRIVER, ASKED).results) == expected


def test_pods_are_the_ones_that_it_is_reserved_for() -> None:
    """Two pods share it; another kind of consumer is no pod."""
    reserved = [
        {"resource": "pods", "name": "p", "uid": "1"},
        {"resource": "jobs", "apiGroup": "batch", "name": "j", "uid": "2"},
        {"resource": "pods", "name": "q", "uid": "3"},
    ]
    assert allocated(claim(reservedFor=reserved), DRIVER, ASKED).pods == (("1", "p"), ("3", "q"))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (None, "claim default/c isn't there any more"),
        ({"metadata": {"uid": "uid-2"}}, "claim default/c was replaced: expected uid uid-1, found uid-2"),
        ({"metadata": {"uid": "uid-1"}}, "claim default/c isn't allocated"),
        ({"metadata": {"uid": "uid-1"}, "status": {"allocation": None}}, "claim default/c isn't allocated"),
    ],
)
def test_a_claim_that_is_none(found: Any, text: str) -> None:
    with pytest.raises(RequestError, match=text):
        allocated(found, DRIVER, ASKED)


def test_a_number_of_shares_that_is_none() -> None:
    with pytest.raises(RequestError, match="device a: expected a whole number of shares below a million, found 1Ki"):
        allocated(claim(result("a", consumedCapacity={"shares": "1Ki"})), DRIVER, ASKED)


def test_the_classes_of_a_claim_for_extended_resources() -> None:
    requests = [{"name": "r", "exactly": {"deviceClassName": "things"}}, {"name": "s", "firstAvailable": []}]
    found = {**claim(), "spec": {"devices": {"requests": requests}}}
    assert allocated(found, DRIVER, ASKED).classes == {}
    found["metadata"]["annotations"] = {EXTENDED: "true"}
    assert allocated(found, DRIVER, ASKED).classes == {"r": "things"}
