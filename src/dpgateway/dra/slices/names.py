"""Ids and names as the API accepts them (apimachinery, pkg/util/validation, v0.37).

A name is a function of the id alone, because a claim that was allocated before a restart names the device after it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

LONGEST_LABEL = 63
"""Most characters of a DNS label (DNS1123LabelMaxLength)."""
LONGEST_IDENTIFIER = 32
"""Most characters of an attribute's name without its domain (DeviceMaxIDLength, resource/v1/types.go)."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HASH = 8
"""Hex digits of a hash in a name: a clash needs 65,000 ids of one slug, and is found by :func:`unique`."""


def label(text: str) -> str:
    """``text`` if it is a DNS label, else the nearest label with a hash of ``text``."""
    if len(text) <= LONGEST_LABEL and _LABEL.fullmatch(text):
        return text
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[: LONGEST_LABEL - _HASH - 1].rstrip("-")
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH]
    return f"{slug}-{digest}" if slug else f"x-{digest}"


def subdomain(text: str) -> str:
    """``text`` if each of its parts between dots is a DNS label, else one label for it."""
    return (
        text if all(len(part) <= LONGEST_LABEL and _LABEL.fullmatch(part) for part in text.split(".")) else label(text)
    )


def key(resource: str, pool: str | None, id_: str) -> str:
    """What the name of a device is made of: its id. In a ``pool`` the resource's name is in front, because functions of
    one board may have the board's id each.
    """
    return f"{resource.partition('/')[2]}-{id_}" if pool else id_


@lru_cache(maxsize=1024)
def pool_name(node: str, group: str) -> str:
    """The pool of ``group``, a resource's name or that of its pool, on ``node``: DNS subdomains joined by slashes."""
    return "/".join(map(subdomain, (node, *group.split("/"))))


def identifier(name: str) -> str:
    """An attribute's name as a C identifier; empty if it is too long for one."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    found = found if _IDENTIFIER.fullmatch(found) else f"_{found}"
    return found if len(found) <= LONGEST_IDENTIFIER else ""


def unique(ids: Iterable[str]) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The label of each id, and the ids left out because an earlier one has their label: a name that occurs twice makes
    the whole pool invalid. An id that is a label itself comes before one that was made into it.
    """
    found: dict[str, str] = {}
    taken: dict[str, str] = {}
    ordered = list(ids)
    for id_ in sorted(ordered, key=lambda id_: label(id_) != id_):
        if taken.setdefault(label(id_), id_) == id_:
            found[id_] = label(id_)
    return {id_: found[id_] for id_ in ordered if id_ in found}, tuple(id_ for id_ in ordered if id_ not in found)
