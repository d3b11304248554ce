"""The findings that follow from the facts: one function per subject, independent of each other. None compares versions;
the table in ``dpgateway.node.versions`` describes each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from dpgateway.node.holders import Note
from dpgateway.node.versions import ALL
from dpgateway.preflight import features, front, rehearsed, site
from dpgateway.preflight.front import FrontFacts
from dpgateway.preflight.rehearsed import Rehearsal
from dpgateway.preflight.values import Facts, Finding, Verdict

_BAD: tuple[Verdict, ...] = ("loss", "waits", "unknown")
_ORDER = {"loss": 0, "waits": 1, "unknown": 2, "change": 3}
_SHOWN = 5
"""Ids named in a text; ``Finding.ids`` contains all."""
_KEEPS = "the gateway goes on listing the held ids, as Unhealthy, so running containers keep them"
_CRASHES = "; this kubelet can crash if no plugin lists an id that a container holds, so keep the gateway running"


def judge(facts: Facts, rehearsal: Rehearsal | None = None, change: FrontFacts | None = None) -> tuple[Finding, ...]:
    """All findings, losses first. ``change``: of the front by which the resources are to be offered."""
    looks = (
        _memory,
        _ids,
        _unserved,
        _drivers,
        _apis,
        features.findings,
        front.rollback,
        _readmission,
        _node,
        _runtime,
    )
    played = rehearsed.findings(rehearsal) if rehearsal is not None else ()
    here = site.findings(facts.site) if facts.site is not None else ()
    fronts = front.findings(facts, change) if change is not None else ()
    found = chain(here, played, fronts, chain.from_iterable(look(facts) for look in looks))
    return tuple(sorted(found, key=lambda one: _ORDER[one.level]))


def verdict(findings: Iterable[Finding]) -> Verdict:
    levels = {one.level for one in findings}
    return next((one for one in _BAD if one in levels), "safe")


def _memory(facts: Facts) -> Iterator[Finding]:
    """Whether the new kubelet can read the checkpoint."""
    held, to = facts.held, facts.to
    if held.unread:
        text = f"the holders aren't known: {held.unread}"
        yield Finding("unknown", "checkpoint-unread", text, f"drain the node before it gets a kubelet {to}")
        return
    ids = tuple(sorted({id_ for note in held.notes.values() for id_ in note}))
    if not ids:
        return
    pods = _pods(*held.notes.values())

    # A kubelet that can't read its checkpoint starts empty: it doesn't know the running pods' devices any more.
    unread = held.layouts - to.reads
    if unread:
        written = []
        for layout in unread:
            writers = [one for one in ALL if one.writes is layout]
            first, last = writers[0], writers[-1]
            written.append(f"as {first} writes it" if first is last else f"as {first} to {last} write it")
        text = (
            f"kubelet {to} can't read this checkpoint ({' or '.join(sorted(written))}): it forgets what containers of "
            f"{_count(len(pods), 'pod')} hold, and may give these devices to other pods as well"
        )

        # An intermediate version reads the present format and writes one that the new kubelet reads.
        bridges = [one for one in ALL if held.layouts <= one.reads - one.reads_lately and one.writes in to.reads]
        through = f", or go through a kubelet {bridges[0]} to {bridges[-1]}, which reads this format" if bridges else ""
        yield Finding("loss", "checkpoint-forgotten", text, f"drain the node first{through}", ids=ids, pods=pods)
    elif held.layouts & to.reads_lately:
        text = (
            f"the first patches of kubelet {to} can't read this checkpoint, and forget what containers of "
            f"{_count(len(pods), 'pod')} hold (kubernetes #102880); the last ones can"
        )
        advice = f"take the newest patch of {to}, or drain the node first"
        yield Finding("unknown", "checkpoint-by-patch", text, advice, ids=ids, pods=pods)


def _ids(facts: Facts) -> Iterator[Finding]:
    """Held ids that wouldn't be listed, or would be Unhealthy."""
    for one in facts.served:
        note = facts.held.notes.get(one.name, {})
        if one.failure is not None:  # _drivers reports it
            continue
        if missing := _subset(note, (id_ for id_ in note if id_ not in one.offered)):
            # Kubelets from 1.34 on read such an id's Topology without a nil check (seen on 1.36.4 and 1.37.1).
            text = f"containers hold {_names(missing)}, which driver {one.driver} doesn't list; {_KEEPS}"
            text += _CRASHES if facts.to.unlisted_crashes else ""
            advice = "`dpgateway devices` shows what the driver finds; a pod that starts again gets another device"
            yield Finding("loss", "id-unlisted", text, advice, one.name, tuple(missing), _pods(missing))
        if ill := _subset(note, (id_ for id_ in note if one.offered.get(id_))):
            reasons = ", ".join(sorted({one.offered[id_] for id_ in ill}))
            text = f"containers hold {_names(ill)}, which would be Unhealthy: {reasons}"
            yield Finding("change", "id-unhealthy", text, "", one.name, tuple(ill), _pods(ill))


def _unserved(facts: Facts) -> Iterator[Finding]:
    """Held devices of resources that aren't configured."""
    names = {one.name for one in facts.served}
    for name, note in sorted(facts.held.notes.items()):
        if name in names or not note:
            continue
        ids, pods = tuple(sorted(note)), _pods(note)
        if name in facts.ours:
            text = f"containers hold {_names(note)}, which dpgateway gave them, but the configuration has no {name} for"
            text += f" this node any more{_CRASHES if facts.to.unlisted_crashes else ''}"
            advice = f"drain the node first, or keep {name} configured while it is held"
            yield Finding("loss", "resource-unserved", text, advice, name, ids, pods)
        else:
            text = f"containers hold {_names(note)}, but not from dpgateway: ask the plugin that serves {name}"
            yield Finding("change", "resource-of-others", text, "", name, ids, pods)


def _drivers(facts: Facts) -> Iterator[Finding]:
    for one in facts.served:
        if one.failure is not None:
            text = f"its devices aren't known: {one.failure} (driver {one.driver})"
            note = facts.held.notes.get(one.name, {})
            yield Finding("unknown", "driver-failed", text, "mend it first", one.name, tuple(sorted(note)), _pods(note))


def _apis(facts: Facts) -> Iterator[Finding]:
    to, now = facts.to, sorted({one.api for one in facts.present.versions})
    if to.api not in facts.apis:
        text = f"kubelet {to} speaks {to.api}, which the configuration's kubelet.apis leaves out: it gets no resource"
        yield Finding("loss", "api-refused", text, "remove kubelet.apis from the configuration")
    elif now != [to.api]:
        text = f"kubelet {to} speaks {to.api}, the present one {' or '.join(now)}; the gateway speaks them all"
        yield Finding("change", "api-changes", text)
    if to.gated:  # the gate DevicePlugins is alpha, and off, in 1.8 and 1.9
        text = f"kubelet {to} has no device plugins unless it has --feature-gates=DevicePlugins=true"
        yield Finding("change", "feature-gate", text)


def _readmission(facts: Facts) -> Iterator[Finding]:
    # kubernetes #109595
    if facts.to.needs_healthy and not facts.present.oldest.needs_healthy and any(facts.held.notes.values()):
        text = (
            f"kubelet {facts.to} refuses a pod that it admits again while none of the pod's containers runs and a "
            "device of the pod isn't Healthy or not yet listed, as after a reboot"
        )
        yield Finding("change", "readmission", text, "have the gateway start before, or with, the kubelet")


def _node(facts: Facts) -> Iterator[Finding]:
    to = facts.to
    fits = facts.cgroups == 2 or facts.allows_cgroup_v1
    if fits or not to.refuses_cgroup_v1 or facts.present.oldest.refuses_cgroup_v1:
        return
    found = "this node has cgroup v1" if facts.cgroups else "which version of cgroups this node has isn't known"
    text = f"{found}; with version 1 kubelet {to} doesn't start unless its configuration has failCgroupV1: false"
    advice = "move the node to cgroup v2, or set failCgroupV1: false before the upgrade"
    yield Finding("loss" if facts.cgroups else "unknown", "cgroup-v1", text, advice)


def _runtime(facts: Facts) -> Iterator[Finding]:
    to, runtime = facts.to, facts.runtime
    if runtime is None:
        if to.cri_v1_only and not facts.present.oldest.cri_v1_only:
            text = f"kubelet {to} needs a container runtime that speaks CRI v1; the runtime isn't known"
            advice = "name its socket as runtime.socket in the configuration, or the present kubelet with --from"
            yield Finding("unknown", "runtime-unknown", f"{text}: {facts.no_runtime}", advice)
        return

    # Kubelets 1.29 to 1.31 pass CDI names over CRI and in an annotation; 1.32 and later over CRI only.
    who = f"{runtime.name} {runtime.version}"
    loses_annotation = not to.cdi_annotation and any(one.cdi_annotation for one in facts.present.versions)
    for name in sorted(facts.held.named if to.cdi else ()):
        if runtime.cdi is False:
            text = f"containers got devices by their CDI names, which {who} drops: restarted, they are without them"
            advice = "drain the node, or upgrade the runtime first; with containerd 1.7 set enable_cdi = true"
            yield Finding("loss", "cdi-dropped", text, advice, name)
        elif runtime.cdi is None and loses_annotation:
            text = f"kubelet {to} says CDI names over CRI alone, no longer in an annotation; whether {who} heeds them"
            advice = "with containerd 1.7.2 and later set enable_cdi = true"
            yield Finding("unknown", "cdi-unsure", f"{text} isn't known", advice, name)
    if to.cdi and runtime.cdi is False and not facts.held.named:
        text = f"{who} doesn't know CDI: the gateway says in other words what CDI names stand for, or refuses them"
        yield Finding("change", "cdi-expanded", text)
    if to.cdi and runtime.cdi is not False and runtime.unread_cdi_dirs:
        text = f"{who} reads no CDI specs in {' and '.join(runtime.unread_cdi_dirs)}: the gateway says in other words"
        text += " what their names stand for, or refuses them"
        advice = "name the directory in the runtime's cdi_spec_dirs, or leave it out of runtime.cdi_dirs"
        yield Finding("change", "cdi-unread", text, advice)


def _pods(*notes: Note) -> tuple[str, ...]:
    return tuple(sorted({uid for note in notes for noted in note.values() for uid in noted.pods}))


def _subset(note: Note, ids: Iterable[str]) -> Note:
    return {id_: note[id_] for id_ in sorted(ids)}


def _names(note: Note) -> str:
    ids = sorted(note)
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
