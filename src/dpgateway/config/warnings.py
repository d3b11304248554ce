"""Warnings about a valid configuration that may not do what its author intends. Their text is in ``hint``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from dpgateway.config.document import Document, Entry
from dpgateway.config.problems import Place, Problem, in_order, shortened
from dpgateway.config.values import KubeletSettings, ResourceKeys
from dpgateway.model import place

_HOSTS_OWN = tuple(map(PurePosixPath, ("/boot", "/etc", "/root", "/usr", "/var/lib/kubelet")))
"""Directories of the host: write access to them is as good as root."""
_PLAIN = re.compile(r"http://(?!(?:localhost|127(?:\.\d+){3}|\[::1\])(?::|$))")
"""The beginning of a URL of another machine, without encryption."""
_VARIABLE = re.compile(r"\$(?:\{\w+\}|\(\w+\))")


def advise(document: Document, preferring: Collection[str]) -> tuple[Problem, ...]:
    """All warnings. ``preferring``: the names of drivers with a method ``prefer``."""
    whole = Place(str(document.path))
    ignored = "it isn't read: only names that end in .yaml are"
    found = [Problem(Place(str(file)), hint=ignored) for file in document.ignored]
    if not document.entries:
        found.append(Problem(whole, hint=nothing_served(document)))
    if document.kubelet.apis != KubeletSettings().apis:
        text = "this is for diagnosis only: kubelets that speak none of these APIs get no resource"
        found.append(Problem(whole.below("kubelet", "apis"), hint=text))
    if (address := document.web.address) and not address[0].is_loopback:
        text = "all who reach this address can read which pods have which devices, without a password"
        found.append(Problem(whole.below("web", "listen"), hint=text))
    if document.cluster.server is not None and _PLAIN.match(document.cluster.server):
        text = "without https others can read the account's token on its way, and change what the API server answers"
        found.append(Problem(whole.below("cluster", "server"), hint=text))
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


def _of_resource(entry: Entry, resource: ResourceKeys, *, prefers: bool) -> Iterator[Problem]:
    written, asked = entry.written, resource.front != "dra"  # by DRA no kubelet asks for a preference
    if resource.shares.distinct == "require" and resource.shares.count > 1 and asked:
        # GetPreferredAllocation came with 1.19
        text = "kubelets before 1.19 pick shares blindly: a container that wants two may be refused for ever"
        yield Problem(written.at("shares"), hint=text)
    if resource.preference != "none" and prefers and asked:
        yield Problem(written.at("preference"), hint=f"the driver's own prefer isn't asked with {resource.preference}")
    for index, mount in enumerate(resource.mounts):
        inside, host = place(mount.container_path), PurePosixPath(place(mount.host_path))
        own = any(host in (path, *path.parents) or path in host.parents for path in _HOSTS_OWN)
        if inside == "/":
            text = "container_path is /, so the mount hides all of the container's own files"
            yield Problem(written.at("mounts", index), hint=text)
        elif own and not mount.read_only:
            risk = "and so change what the node runs as root; is read_only: true enough?"
            yield Problem(written.at("mounts", index), hint=f"the container can write {host}, {risk}")
    for part in written.parts():
        found = _VARIABLE.search(part.value) if isinstance(part.value, str) else None
        if found:  # its author may expect that ${HOME} is replaced
            yield Problem(part.place, hint=f"values are literal, so {shortened(found[0])} stays as it is")
