"""Whether a record's claim has ended without an Unprepare: the kubelet lost its state, or nobody served when it ended.

A wrong verdict gives a running pod's device to another, so each source must agree: the API server doesn't give the
devices to the claim any more, the kubelet doesn't list the claim, and the directories of its pods are gone. A source
that can't be asked proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from dpgateway.dra.claims.reading import Asked, allocated
from dpgateway.dra.claims.records import ClaimRecord, Phase
from dpgateway.errors import RequestError


class NodeEvidence(NamedTuple):
    """What the node tells of all claims; None where it can't be asked."""

    listed: Collection[tuple[str, str]] | None
    """The namespace and the name of each claim that the kubelet's PodResources lists."""
    pods: frozenset[str] | None
    """The uids of the pods that have a directory."""
    names: frozenset[tuple[str, str]] = frozenset()
    """The namespace and the name of each pod that the kubelet's PodResources lists."""


def unused(record: ClaimRecord, node: NodeEvidence) -> bool:
    """Whether nothing on the node uses the claim: only then the API server is worth a request."""
    if node.listed is None or node.pods is None or record.phase is Phase.ENDING:
        return False
    # A pod that was deleted by force isn't listed, but has its directory while its containers run.
    return (record.namespace, record.name) not in node.listed and node.pods.isdisjoint(uid for uid, _ in record.pods)


def unlisted(record: ClaimRecord, node: NodeEvidence) -> bool:
    """Whether the kubelet, which lists pods, doesn't list that of a claim made for one pod any more: it was deleted by
    force and its containers have their grace period, or it has failed and keeps its directory. Another pod may have its
    name, so this finds not all of them.
    """
    if not node.names or not _of_one_pod(record) or record.phase is Phase.ENDING:
        return False
    names = {(record.namespace, name) for _, name in record.pods}
    return (record.namespace, record.name) not in (node.listed or ()) and node.names.isdisjoint(names)


def given_up(record: ClaimRecord, claim: Mapping[str, Any] | None, driver: str) -> str:
    """Why the claim at the API server doesn't have the devices of the record; empty if it has any. ``claim``: None if
    there is none.
    """
    try:
        # A claim of an earlier driver's name has no devices of the present one.
        now = allocated(claim, record.driver or driver, Asked(record.namespace, record.name, record.uid))
    except RequestError as error:
        return str(error)
    had = {(one.pool, device, share) for one in record.given for device, share in one.devices}
    if had and had.isdisjoint((one.pool, one.device, one.share_id) for one in now.results):
        return f"{record} is allocated to other devices"
    return ""


def over(record: ClaimRecord, claim: Mapping[str, Any] | None) -> bool:
    """Whether an unused claim that was given up can't come back into use: the scheduler made it for one pod, and it is
    gone at the API server, as that pod is. A kubelet reads a claim there before it prepares it. Another claim may be in
    use by pods of which the record doesn't know. One that is there still may be allocated again, and a kubelet that has
    it prepared doesn't ask for that once more.
    """
    gone = claim is None or str(claim["metadata"]["uid"]) != record.uid
    return gone and _of_one_pod(record)


def _of_one_pod(record: ClaimRecord) -> bool:
    return bool(record.pods and record.given) and all(one.extended for one in record.given)
