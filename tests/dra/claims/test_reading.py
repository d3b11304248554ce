"""A claim's allocation as the API server has it, what of it is ours, and which parameters count for a request."""

from __future__ import annotations

from typing import Any

import pytest

from dpgateway.dra.claims.reading import EXTENDED, Asked, Result, allocated, parameters
from dpgateway.errors import RequestError

DRIVER = "dra.example.com"
ASKED = Asked("default", "c", "uid-1")
VALID = {"apiVersion": "dpgateway/v1alpha1", "kind": "Parameters"}
CLASS, CLAIM = "FromClass", "FromClaim"


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


def config(options: Any, *requests: str, source: str = CLASS, driver: str = DRIVER, **document: Any) -> dict[str, Any]:
    opaque = {"driver": driver, "parameters": {**VALID, "options": options, **document}}
    return {"source": source, "requests": list(requests), "opaque": opaque}


def found(*configs: Any, request: str = "r") -> Any:
    result = {"request": request, "driver": DRIVER, "pool": "n1", "device": "a"}
    status = {"allocation": {"devices": {"results": [result], "config": configs}}}
    wanted = allocated({"metadata": {"uid": "1"}, "status": status}, DRIVER, Asked("default", "c", "1"))
    return dict(parameters(wanted, wanted.results[0]))


@pytest.mark.parametrize(
    ("configs", "request_", "expected"),
    [
        ([], "r", {}),
        ([config({"a": 1})], "r", {"a": 1}),
        ([config({"a": 1}, "r")], "r", {"a": 1}),
        ([config({"a": 1}, "s")], "r", {}),
        ([config({"a": 1}, "s", "r")], "r", {"a": 1}),
        ([config({"a": 1}, "r")], "r/small", {"a": 1}),
        ([config({"a": 1}, "r/small")], "r/small", {"a": 1}),
        ([config({"a": 1}, "r/big")], "r/small", {}),
        ([config({"a": 1}, driver="other")], "r", {}),
        ([config({"a": 1}), config({"b": 2}, source=CLAIM)], "r", {"a": 1, "b": 2}),
        ([config({"b": 2}, source=CLAIM), config({"a": 1})], "r", {"a": 1, "b": 2}),
        ([config({"a": 1}), config({"a": 1}, source=CLAIM)], "r", {"a": 1}),
        ([config({"a": 1}), config({"a": 2})], "r", {"a": 2}),
        ([config({"a": 1}, source=CLAIM), config({"a": 2}, source=CLAIM)], "r", {"a": 2}),
        ([config(None)], "r", {}),
        ([{"source": CLASS}], "r", {}),
    ],
)
def test_parameters_of_a_request(configs: Any, request_: str, expected: Any) -> None:
    assert found(*configs, request=request_) == expected


@pytest.mark.parametrize("order", [1, -1])
def test_a_claim_cannot_override_its_class(order: int) -> None:
    configs = [config({"a": "net"}), config({"a": "aes"}, source=CLAIM)][::order]
    with pytest.raises(RequestError, match="of the claim for request r: a: found 'aes', expected 'net', as the class"):
        found(*configs)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"apiVersion": "v1"}, "apiVersion: found 'v1', expected dpgateway/v1alpha1"),
        ({"kind": None}, "kind: found nothing, expected Parameters"),
        ({"opts": {}}, "opts: found an unknown key, expected apiVersion, kind and options"),
        ({"options": [1]}, r"options: found \[1\], expected a mapping"),
    ],
)
def test_a_document_that_is_none(document: Any, text: str) -> None:
    with pytest.raises(RequestError, match=f"claim default/c: parameters of the class for request r: {text}"):
        found(config(document.pop("options", {}), **document))


def test_parameters_that_are_no_mapping() -> None:
    one = config({})
    one["opaque"]["parameters"] = "net"
    with pytest.raises(RequestError, match="found 'net', expected a mapping with apiVersion, kind and options"):
        found(one)


def test_what_is_wrong_in_parameters_concerns_no_other_reading() -> None:
    """A record isn't stale because its claim's parameters can't be read any more."""
    status = {"allocation": {"devices": {"results": [], "config": [config([1])]}}}
    assert allocated({"metadata": {"uid": "1"}, "status": status}, DRIVER, Asked("default", "c", "1")).results == ()
    assert Result("r", "n1", "a").alternative == ""
