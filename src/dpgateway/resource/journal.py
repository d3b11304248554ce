"""What one resource's containers were given, kept on disk until somebody was told that it is free again.

One small JSON file for each resource, in ``state_dir``, written by the gateway that has the resource's lock. It is
there only while something is unreleased. Without the file, what is held is known from the kubelet alone, as if the
gateway had never run here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dpgateway.errors import KubeletError, describe
from dpgateway.kit.files import TooLongError, make_private, read, write
from dpgateway.resource.front import Unreleased

VERSION = 1
LARGEST = 32 * 1024 * 1024
"""Bytes."""
LATEST = 2**36
"""Seconds since 1970: the year 4147, which every calendar has."""

Entries = Mapping[str, Unreleased]


class Journal:
    """Blocks, so it is used on a thread."""

    def __init__(self, state_dir: Path, device_plugins_dir: Path, resource: str) -> None:
        name = hashlib.sha256(f"{device_plugins_dir}\0{resource}".encode()).hexdigest()[:16]
        self.path = state_dir / f"{name}.json"
        self._resource = resource

    def load(self) -> Entries:
        """Empty if there is no file; raises KubeletError or OSError if there is one that can't be read."""
        try:
            raw = read(self.path, LARGEST).content
        except FileNotFoundError:
            return {}
        except TooLongError as error:
            raise KubeletError(str(error)) from error
        return from_json(raw, self._resource, str(self.path))

    def save(self, unreleased: Entries, *, sync: bool = True) -> None:
        """Raises OSError; then the file is as it was before. ``sync``: so that a power cut doesn't undo it."""
        if not unreleased:
            self.path.unlink(missing_ok=True)
            return
        make_private(self.path.parent)  # what is written there decides who gets a device
        write(self.path, to_json(unreleased, self._resource), sync=sync)

    def put_aside(self) -> Path:
        """A file that can't be read gets another name, in place of an earlier one, so that people can look at it."""
        return self.path.rename(self.path.with_suffix(".damaged"))


def to_json(unreleased: Entries, resource: str) -> bytes:
    ids = {id_: entry._asdict() for id_, entry in unreleased.items()}
    return json.dumps({"version": VERSION, "resource": resource, "claims": ids}, default=sorted).encode()


def from_json(raw: bytes, resource: str, path: str) -> Entries:
    """Raises KubeletError for anything that :func:`to_json` doesn't write."""
    try:
        return _entries(raw, resource)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KubeletError(f"{path}: not a journal that this gateway wrote: {error!r:.300}") from error


def _entries(raw: bytes, resource: str) -> Entries:
    document = json.loads(raw)
    if (document["version"], document["resource"]) != (VERSION, resource):
        raise ValueError(f"expected version {VERSION} of {resource}")
    return {_text(id_): _entry(given) for id_, given in document["claims"].items()}


def _entry(given: Mapping[str, Any]) -> Unreleased:
    kubelet = given["kubelet"]
    if not isinstance(kubelet, str):
        raise TypeError(f"expected a text, found {kubelet!r:.100}")
    since = given.get("since")  # the first gateways didn't write it
    if since is not None and not (type(since) is int and 0 <= since < LATEST):
        raise ValueError(f"expected seconds since 1970, found {since!r:.100}")
    device, driver, boot = given.get("device", ""), given.get("driver"), given.get("boot", "")  # nor these
    for text in (device, driver or "", boot):
        if not isinstance(text, str):
            raise TypeError(f"expected a text, found {text!r:.100}")
    return Unreleased(kubelet, _texts(given["pods"]), _texts(given["hardware"]), since, device, driver, boot)


def _texts(value: object) -> frozenset[str]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {value!r:.100}")
    return frozenset(map(_text, value))


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"expected a text, found {value!r:.100}")
    value.encode()  # half a character can't be listed
    return value


def entries_of_others(
    state_dir: Path, device_plugins_dir: Path, resources: Collection[str]
) -> tuple[dict[str, Entries], list[str]]:
    """What was written down of other resources than these, and what is wrong with files that can't be read."""
    found: dict[str, Entries] = {}
    complaints = []
    ours = {Journal(state_dir, device_plugins_dir, resource).path for resource in resources}
    for path in sorted(set(state_dir.glob("*.json")) - ours):
        try:
            resource = json.loads(read(path, LARGEST).content)["resource"]
            journal = Journal(state_dir, device_plugins_dir, resource)
            if journal.path == path:  # else it is of another kubelet
                found[resource] = journal.load()
        except (KubeletError, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            complaints.append(f"{path}: {describe(error):.300}")
    return found, complaints
