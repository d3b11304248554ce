"""Warnings about a valid configuration that may not do what its author intends. Their text is in ``hint``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from dpgateway.config.document import Document, Entry
from dpgateway.config.problems import Place, Problem, in_order, shortened
from dpgateway.config.values import KubeletSettings, ResourceKeys
from dpgateway.model import Mount, place

_HOSTS_OWN = tuple(map(PurePosixPath, ("/boot", "/etc", "/root", "/usr", "/var/lib/kubelet")))
"""Directories of the host: write access to them is as good as root."""
_VARIABLE = re.compile(r"\$(?:\{\w+\}|\(\w+\))")


def advise(document: Document, preferring: Collection[str]) -> tuple[Problem, ...]:
    """All warnings. ``preferring``: the names of drivers with a method ``prefer``."""
    found = [*_of_files(document)]
    for entry in document.entries:
        if entry.resource is not None:
            found += _of_resource(entry, entry.resource, prefers=entry.driver in preferring)
    return in_order(found)


def nothing_served(document: Document) -> str:
    """Why a valid configuration serves nothing on this node."""
    if not document.elsewhere:
        return "resources is empty, so nothing is served"
    patterns = sorted({pattern for entry in document.elsewhere if entry.resource for pattern in entry.resource.nodes})
    whose = f"those named {' or '.join(patterns)}" if patterns else "none"
    return f"no resource is for node {document.node_name}, only for {whose}, so nothing is served"


def _of_files(document: Document) -> Iterator[Problem]:
    whole = Place(str(document.path))
    for file in document.ignored:
        yield Problem(Place(str(file)), hint="it isn't read: only names that end in .yaml are")
    if not document.entries:
        yield Problem(whole, hint=nothing_served(document))
    if document.kubelet.apis != KubeletSettings().apis:
        text = "this is for diagnosis only: kubelets that speak none of these APIs get no resource"
        yield Problem(whole.below("kubelet", "apis"), hint=text)
    if (address := document.web.address) and not address[0].is_loopback:
        text = "all who reach this address can read which pods have which devices, without a password"
        yield Problem(whole.below("web", "listen"), hint=text)


def _of_resource(entry: Entry, resource: ResourceKeys, *, prefers: bool) -> Iterator[Problem]:
    written, asked = entry.written, resource.front != "dra"  # by DRA no kubelet asks for a preference
    if resource.shares.distinct == "require" and resource.shares.count > 1 and asked:
        # GetPreferredAllocation came with 1.19
        text = "kubelets before 1.19 pick shares blindly: a container that wants two may be refused for ever"
        yield Problem(written.at("shares"), hint=text)
    if resource.preference != "none" and prefers and asked:
        yield Problem(written.at("preference"), hint=f"the driver's own prefer isn't asked with {resource.preference}")
    for index, mount in enumerate(resource.mounts):
        if text := _doubt_of(mount):
            yield Problem(written.at("mounts", index), hint=text)
    for part in written.parts():
        found = _VARIABLE.search(part.value) if isinstance(part.value, str) else None
        if found:  # its author may expect that ${HOME} is replaced
            yield Problem(part.place, hint=f"values are literal, so {shortened(found[0])} stays as it is")


def _doubt_of(mount: Mount) -> str:
    inside, host = place(mount.container_path), PurePosixPath(place(mount.host_path))
    if inside == "/":
        return "container_path is /, so the mount hides all of the container's own files"
    if not mount.read_only and any(host in (path, *path.parents) or path in host.parents for path in _HOSTS_OWN):
        return f"the container can write {host}, and so change what the node runs as root; is read_only: true enough?"
    return ""
