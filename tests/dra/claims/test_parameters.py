"""Which parameters of class and claim count for a request, and which documents are none."""

from __future__ import annotations

from typing import Any

import pytest

from dpgateway.dra.claims.parameters import parameters
from dpgateway.dra.claims.reading import Result, allocated
from dpgateway.errors import RequestError

DRIVER = "dra.example.com"
VALID = {"apiVersion": "dpgateway/v1alpha1", "kind": "Parameters"}
CLASS, CLAIM = "FromClass", "FromClaim"


def config(options: Any, *requests: str, source: str = CLASS, driver: str = DRIVER, **document: Any) -> dict[str, Any]:
    opaque = {"driver": driver, "parameters": {**VALID, "options": options, **document}}
    return {"source": source, "requests": list(requests), "opaque": opaque}


def found(*configs: Any, request: str = "r") -> Any:
    result = {"request": request, "driver": DRIVER, "pool": "n1", "device": "a"}
    status = {"allocation": {"devices": {"results": [result], "config": configs}}}
    wanted = allocated({"metadata": {"uid": "1"}, "status": status}, DRIVER, ("default", "c", "1"))
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
    assert allocated({"metadata": {"uid": "1"}, "status": status}, DRIVER, ("default", "c", "1")).results == ()
    assert Result("r", "n1", "a").alternative == ""
