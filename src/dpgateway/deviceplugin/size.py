"""How long a resource's list may be, and how long it may become; and how large the answer to an Allocate may be.

A list must be short enough even if everything on it turns Unhealthy one day, and NUMA nodes count. Nothing is encoded
to find that out: a bound that is quick to count is enough for nearly every list, and the exact size is arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass

from dpgateway.deviceplugin.api import Api, Call
from dpgateway.deviceplugin.api.v1beta1 import UNHEALTHY
from dpgateway.deviceplugin.values import Grant
from dpgateway.model import Device
from dpgateway.resource.ledger import Lost, offers_of
from dpgateway.resource.offers import Offer
from dpgateway.resource.shares import share_id

LARGEST_LIST = 4 * 1024 * 1024
"""Bytes. A kubelet from 1.10 on ends a stream that sends it more (grpc-go's default). Kubelets 1.8 and 1.9 would take a
longer list, but their node is upgraded one day."""

LARGEST_ANSWER = 4 * 1024 * 1024
"""Bytes of the answer to an Allocate, for the same reason: the kubelet would fail the pod with gRPC's words."""

_MOST_FRAMING = 40
"""Bytes of an Unhealthy id's entry at most, without the id and its NUMA nodes: the word, every tag and length, and the
suffix of a share."""
_LEAST_FRAMING = 15
"""The same at least: the word, three tags and lengths."""
_MOST_OF_A_CHARACTER = 4
_MOST_OF_A_NODE = 8
"""Bytes of a NUMA node at most: a number below 2**31, two tags and a length."""


def bound(entries: Collection[Device] | Collection[Lost], ids: Iterable[str], shares: int = 1) -> int:
    """Bytes that a list of ``entries`` with these ids takes at most, each offered so many times."""
    nodes = sum(map(len, [entry.numa_nodes for entry in entries]))
    return shares * (_text(ids) + _MOST_FRAMING * len(entries) + _MOST_OF_A_NODE * nodes)


def worst(offers: Iterable[Offer]) -> int:
    """Bytes of the list of ``offers`` in v1beta1 if everything on it were Unhealthy."""
    return sum(map(_entry, offers))


def too_long(
    devices: Collection[Device],
    shares: int,
    besides: int = 0,
    after: Callable[[], Collection[Offer]] | None = None,
    form: str = "",
) -> str:
    """Why no kubelet would take the list of ``devices``; empty if it would.

    ``besides``: bytes of what else is listed, at most. ``after()``: the whole list, if it has more than ``devices``;
    called only if the list may be too long. ``form``: of the shares' ids.
    """
    ids = [share_id(device.id, shares - 1, form) if form else device.id for device in devices]
    if bound(devices, ids, shares) + besides <= LARGEST_LIST:
        return ""
    count, size = shares * len(devices), shares * (_text(ids) + _LEAST_FRAMING * len(devices))
    if size <= LARGEST_LIST:  # else the list needn't even be made
        offers = after() if after else offers_of(devices, shares, form).values()
        count, size = len(offers), worst(offers)
    if size <= LARGEST_LIST:
        return ""
    return (
        f"the list of {count} ids takes {size} bytes or more, and the kubelet accepts {LARGEST_LIST}; "
        "offer fewer devices, fewer shares, or shorter ids"
    )


def too_large(grants: Sequence[Grant], api: Api) -> str:
    """Why no kubelet would take the answer to an Allocate that has these grants; empty if it would."""
    texts = tuple(_texts(tuple(grants)))
    if _MOST_OF_A_CHARACTER * sum(map(len, texts)) + _MOST_FRAMING * len(texts) <= LARGEST_ANSWER:
        return ""
    encode = next(rpc.encode for rpc in api.rpcs if rpc.call is Call.ALLOCATE)
    size = len(encode(tuple(grants)))
    if size <= LARGEST_ANSWER:
        return ""
    return f"the answer takes {size} bytes, and the kubelet accepts {LARGEST_ANSWER}"


def _texts(value: object) -> Iterator[str]:
    """Every text in it, of whichever field."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts((*value.keys(), *value.values()))
    elif isinstance(value, tuple):
        for each in value:
            yield from _texts(each)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _texts(getattr(value, field.name))


def _text(ids: Iterable[str]) -> int:
    return len("".join(ids).encode())


def _entry(offer: Offer) -> int:
    device = _field(len(offer.id.encode())) + _field(len(UNHEALTHY))
    if offer.numa_nodes:
        device += _field(sum(_field(1 + _varint(node) if node else 0) for node in offer.numa_nodes))
    return _field(device)


def _field(length: int) -> int:
    """Bytes of a field with so many bytes in it: a tag, the length, and the bytes."""
    return 1 + _varint(length) + length


def _varint(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)
