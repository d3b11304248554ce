"""The troubles of the front for DRA, with advice.

What concerns all of its resources is one trouble of the whole gateway: a registration, the slices, the API server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from dpgateway.resource.published import DraStatus
from dpgateway.status.troubles import (
    ERROR,
    LOOK_AT_KUBELET,
    MOST_NAMED,
    ONE_GATEWAY,
    WARNING,
    some,
)
from dpgateway.status.values import Time, Trouble

PASSING = 60.0
"""Seconds for which an API server may be away: a rolling update of it, or of what is in front of it."""
TOLD_WITHIN = 60.0
"""Seconds within which a kubelet that has just started tells which claims its pods have."""
UNAUTHORIZED, FORBIDDEN, INVALID = 401, 403, 422

NO_DRA = (
    "this kubelet doesn't speak DRA, which needs Kubernetes 1.32 or later, and 1.36 for extended resources: set "
    "`front: deviceplugin` on this node"
)
FIND_REGISTRY = (
    "the kubelet looks for sockets in plugins_registry, below its root directory: if that is elsewhere, set "
    "kubelet.root_dir in the configuration; else look at the kubelet: journalctl -u kubelet"
)
API_AWAY = (
    "pods that run go on, and claims that are prepared, too; others wait until it answers. Can this node reach the "
    "address, and is it the cluster's? It is cluster.server in the configuration, or the pod's environment"
)
RIGHTS = (
    "its account needs get, list, watch, create, update and delete of resourceslices.resource.k8s.io, and get of nodes "
    "and resourceclaims.resource.k8s.io: the chart's ClusterRole has them all"
)
RENEW_ACCOUNT = (
    "the token is read again each time: has it expired, or is it another cluster's? Look at cluster.token, or the pod's"
)
INVALID_SLICE = (
    "the text names the field; that is a fault of dpgateway or of a driver's device: please report it with this text"
)
GATES = (
    "switch these feature gates on at the API server: DRAConsumableCapacity for shares, DRAPartitionableDevices for "
    "hardware behind several devices, DRADeviceTaints for Unhealthy ones; or set `front: deviceplugin`"
)
CONTEST = (
    "who else writes slices of this driver? Look for a second dpgateway, or for what cleans up: "
    "kubectl get resourceslices --field-selector=spec.driver={driver}"
)
DOUBT = "the records are in `state_dir`/dra/claims; the gateway looks again by itself, every 30 s"
AWAIT_CLAIM = "its pods go on, and end as ever while `dra.driver` stays configured; without it they can't end"
AT_RISK = "delete their pods: the successors get devices by the device plugin"
REFUSED_CLAIM = (
    "the kubelet asks again about every minute; this is over once a claim is prepared, or ends. The log may say more"
)
LEAVING = frozenset({"leaving-plugin", "leaving-dra"})
SWITCHING = 60.0
"""Seconds that a change of front may take: the kubelet writes its Node each 10 s, and claims have their time."""
SWITCH = "new pods wait meanwhile; `front: deviceplugin` or `front: dra` ends it. docs/how-to/move-to-dra.md says more"
FLAPS = "what it needs for DRA comes and goes: `dpgateway status --output json` says what, in dra.switches"
UNSURE = (
    "it stays on DRA, where containers may run without their devices. docs/how-to/move-to-dra.md says what would tell; "
    "or set `front: deviceplugin` on this node"
)
WITHHELD = "a device is in no slice until its container ends"


def of_dra(dra: DraStatus, kubelet: bool, now: Time, only: str = "") -> tuple[Trouble, ...]:
    """``kubelet``: whether there is one; ``only``: the resource to which the status is limited, empty for none."""
    # Changes of front that take long, or are too many; and a node on DRA that may not be able to do it by now.
    found, registration = list[Trouble](), dra.registration
    for one, name in ((switch, name) for switch in dra.switches for name in switch.resources):
        if one.state in LEAVING and _seconds(one.since, now) > SWITCHING:
            text = f"neither front offers it, because it waits for {one.waits_for or 'the next step'}"
            found.append(Trouble(WARNING, name, text, one.since, SWITCH))
        elif one.flaps:
            found.append(Trouble(WARNING, name, one.because, one.since, FLAPS))
        elif one.state == "dra" and one.unknown and registration.registered and not dra.api_server.failure:
            found.append(Trouble(WARNING, name, one.because, None, UNSURE))

    # A node that stays on the device plugin needs none of it.
    if dra.needed:
        found += _of_registration(dra, kubelet=kubelet)
        failure = dra.api_server.failure
        if failure is not None and _seconds(failure.since, now) > PASSING:
            text = f"the API server doesn't answer: {failure.reason}"
            found.append(Trouble(WARNING, "", text, failure.since, API_AWAY))
        found += _of_slices(dra)
    if (doubt := dra.doubt) is not None and (dra.needed or not dra.switches):
        level = ERROR if _seconds(doubt.since, now) > TOLD_WITHIN else WARNING
        found.append(Trouble(level, "", f"no claim gets devices: {doubt.reason}", doubt.since, DOUBT))
    if dra.refused is not None:
        text = f"the last claim that the kubelet asked for: {dra.refused.reason}"
        advice = RIGHTS if f"found status {FORBIDDEN}" in text else REFUSED_CLAIM
        found.append(Trouble(WARNING, "", text, dra.refused.since, advice))
    found += _of_claims(dra, only)
    return tuple(sorted(found, key=lambda trouble: trouble.level != ERROR))


def of_moved(left: Mapping[str, Sequence[tuple[str, str]]]) -> tuple[Trouble, ...]:
    """The troubles of resources that moved to DRA. ``left``: the ids that containers hold by the device plugin, each
    with its holder, by resource.
    """
    texts = {name: [f"{holder} holds {id_}" for id_, holder in held] for name, held in left.items() if held}
    return tuple(
        Trouble(WARNING, name, f"offered by DRA now, but {some(held, MOST_NAMED)} by the device plugin", None, WITHHELD)
        for name, held in texts.items()
    )


def _of_registration(dra: DraStatus, *, kubelet: bool) -> Iterator[Trouble]:
    one = dra.registration
    if dra.elsewhere is not None:
        text = f"DRA driver {dra.driver}: {dra.elsewhere}"
        yield Trouble(WARNING, "", text, one.since, ONE_GATEWAY)
    elif kubelet and not one.registered:
        if one.failure is None:
            text = f"the kubelet hasn't registered DRA driver {dra.driver} yet"
            yield Trouble(ERROR, "", text, one.since, FIND_REGISTRY)
        elif one.state == "unready":
            advice = FIND_REGISTRY if "plugins_registry" in one.failure else None
            yield Trouble(ERROR, "", f"DRA can't be served: {one.failure}", one.since, advice)
        else:
            text = f"the kubelet refuses DRA driver {dra.driver}: {one.failure}"
            yield Trouble(ERROR, "", text, one.since, NO_DRA if "no handler registered" in text else LOOK_AT_KUBELET)


def _of_slices(dra: DraStatus) -> Iterator[Trouble]:
    slices = dra.slices
    refused = [one for one in slices.pools if one.refused is not None]
    for one in refused:
        yield Trouble(ERROR, "", str(one.refused), None, GATES)
    failure = slices.failure
    # Without an answer the server is away, which is told once.
    if failure is not None and not refused and (dra.api_server.failure is None or slices.contested):
        text = f"slices aren't as they should be: {failure.reason}"
        by_code = {UNAUTHORIZED: RENEW_ACCOUNT, FORBIDDEN: RIGHTS, INVALID: INVALID_SLICE}
        # A watch that is refused has its status in the text alone.
        fits = [it for code, it in by_code.items() if slices.code == code or f"found status {code}" in failure.reason]
        advice = CONTEST.format(driver=dra.driver) if slices.contested else next(iter(fits), None)
        yield Trouble(ERROR, "", text, failure.since, advice)
    for one in slices.pools:
        if one.left_out:
            text = f"pool {one.name}: not all of its devices are in slices: {some(one.left_out, MOST_NAMED)}"
            yield Trouble(WARNING, "", text, None, None)


def _of_claims(dra: DraStatus, only: str) -> Iterator[Trouble]:
    """Claims that have devices of resources that aren't offered by DRA any more."""
    left: dict[str, list[str]] = {}
    for claim in dra.claims:
        gone = ", gone: the claim ends once no container of it runs" if claim.gone else ""
        pods = f" (pod {', '.join(claim.pods)}{gone})" if claim.pods else ""
        for given in claim.given:
            if given.resource not in dra.resources and only in ("", given.resource):
                has = f"claim {claim.namespace}/{claim.name}{pods} has {', '.join(given.ids or given.devices)}"
                left.setdefault(given.resource, []).append(has)
    for resource, claims in left.items():
        if (why := dra.at_risk.get(resource)) is not None:
            text = f"containers that start again would run without their devices: {some(claims, MOST_NAMED)}, and {why}"
            yield Trouble(ERROR, resource, text, None, AT_RISK)
        else:
            text = f"not offered by DRA any more, but {some(claims, MOST_NAMED)}"
            yield Trouble(WARNING, resource, text, None, AWAIT_CLAIM)


def _seconds(since: Time | None, now: Time) -> float:
    return 0.0 if since is None else (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds()
