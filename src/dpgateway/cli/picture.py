"""Draws a status as tables, with troubles in colour. docs/reference/status.md describes the values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from dpgateway.cli.output import print_line, print_table

Value = Mapping[str, Any]

RESOURCES = ("resource", "kubelet", "for", "healthy", "unhealthy", "held", "free", "lost", "driver", "listed")
SPARE = ("listed", "driver", "for", "lost", "healthy", "free", "held")
"""Columns that a narrow terminal drops, in this order."""
DEVICES = ("resource", "id", "health", "for", "held by", "reason", "numa", "attributes")
CLAIMS = ("claim", "phase", "for", "resource", "devices", "pods")
DONE = "prepared"
"""The phase of a claim whose devices its pods have."""
MOST_DEVICES = 20
"""Devices in the table of all resources; a single resource's table shows all of its devices."""
MOST_EVENTS = 10

FRONTS = {
    "plugin": "on the device plugin",
    "leaving-plugin": "leaves the device plugin for DRA",
    "dra": "on DRA",
    "leaving-dra": "leaves DRA for the device plugin",
}
"""The states of a change of front, for people."""


def draw(status: Value, *, whole: bool) -> None:
    """Prints a status. ``whole``: with all devices, not only the Unhealthy ones."""
    now = status["time"]
    for text, style in _head(status):
        print_line(text, style)
    resources = status["resources"]
    if resources:
        print_line("")
        _draw_resources(resources, now)
    names = {one["name"] for one in resources}
    _draw_claims(status.get("dra"), names if whole else None, now)
    troubles = [one for one in status["troubles"] if one["resource"] in ("", *names)]
    for one in troubles:
        if one["resource"]:  # the head contains the gateway's
            style, since = "red" if one["level"] == "error" else "yellow", _for(one["since"], now)
            print_line(f"{one['resource']}{since and ','}{since}: {one['reason']}", style)
    for one in resources:
        if whole and not one["failure"] and (error := one["driver"]["error"]):
            print_line(f"its driver's last error, {_age(error['since'], now)} ago: {error['reason']}", "yellow")
    _draw_devices(resources, now, whole=whole)

    # Each advice once, with its resources.
    about: dict[str, list[str]] = {}
    for one in troubles:
        if one["advice"]:
            about.setdefault(one["advice"], []).append(one["resource"])
    if about:
        print_line("")
    for advice, some in about.items():
        named = ", ".join(filter(None, dict.fromkeys(some)))
        print_line(f"what to do{named and f' about {named}'}: {advice}")
    _draw_events(status["events"], names if whole else None)


def _head(status: Value) -> Iterator[tuple[str, str]]:
    now, gateway, kubelet = status["time"], status["gateway"], status["kubelet"]
    started = _for(gateway["since"], now)
    yield f"gateway {gateway['version']} of node {gateway['node']}, pid {gateway['pid']},{started}", ""
    if kubelet["there"]:
        release = f", release {kubelet['release'] or 'unknown'}"
        dra = bool(status.get("dra")) and status["dra"]["registration"]["registered"]
        none = "" if dra else ", accepted no registration yet"
        api = f", speaks {kubelet['api']}{release}" if kubelet["api"] else none
        yield f"kubelet: there{_for(kubelet['since'], now)}{api}", "" if kubelet["api"] or dra else "yellow"
    else:
        yield f"kubelet: none{_for(kubelet['since'], now)}", "red"
    if kubelet["there"] and (failure := status["pod_resources"]["failure"]):
        yield f"the kubelet doesn't say which pods have what: {failure}", "yellow"
    if dra := status.get("dra"):
        yield from _dra(dra, now)
    if refusal := status["reloads"]["refusal"]:
        yield f"the configuration has been refused{_for(refusal['time'], now)}, and {refusal['served']}:", "red"
        yield from ((problem, "red") for problem in refusal["problems"])


def _dra(dra: Value, now: str) -> Iterator[tuple[str, str]]:
    """The front for DRA, which all of its resources share."""
    one, slices = dra["registration"], dra["slices"]
    state = f"DRA driver {dra['driver']}: {one['state']}{_for(one['since'], now)}"
    numbers = [f"{_count(slices['count'], 'slice')} with {_count(slices['devices'], 'device')}"]
    if slices["written"]:
        numbers.append(f"written {_age(slices['written'], now)} ago")
    if dra["claims"]:
        phases = Counter(claim["phase"] for claim in dra["claims"])
        numbers.append(f"claims: {', '.join(f'{count} {phase}' for phase, count in phases.items())}")
    withdrawn = ", withdrawn by the configuration" if dra["withdrawn"] else ""
    switches = dra.get("switches") or ()  # of the groups of resources that change their front by themselves
    needed = bool(dra["resources"] or dra["claims"] or (dra["doubt"] and not switches))
    right = one["registered"] and slices["right"]
    yield f"{state}{withdrawn}; {', '.join(numbers)}", "" if right or not needed else "yellow"
    for switch in switches:
        names, since = ", ".join(switch["resources"]), _for(switch["since"], now)
        where = FRONTS.get(switch["state"], switch["state"])
        yield f"{names} (front: auto): {where}{since}, because {switch['because']}", ""
        if switch["waits_for"]:
            yield f"{names} waits for {switch['waits_for']}", "yellow"
    if needed:
        yield from _dra_wrong(dra, now)


def _dra_wrong(dra: Value, now: str) -> Iterator[tuple[str, str]]:
    one, slices, server = dra["registration"], dra["slices"], dra["api_server"]
    if dra["elsewhere"]:
        yield dra["elsewhere"], "yellow"
    elif one["failure"]:
        yield f"the kubelet refuses DRA driver {dra['driver']}: {one['failure']}", "red"
    if slices["waits"] and one["registered"]:
        yield f"slices aren't written yet: {slices['waits']}", "yellow"
    for text, failure in (
        ("no claim gets devices", dra["doubt"]),
        (f"the API server {server['url']} doesn't answer", server["failure"]),
        ("slices aren't as they should be", None if server["failure"] else slices["failure"]),
    ):
        if failure:
            yield f"{text}{_for(failure['since'], now)}: {failure['reason']}", "red"
    if refused := dra["refused"]:
        yield f"the last claim wasn't served, {_age(refused['since'], now)} ago: {refused['reason']}", "yellow"
    for pool in slices["pools"]:
        yield from ((f"pool {pool['name']}: {text}", "yellow") for text in pool["left_out"])


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _draw_claims(dra: Value | None, names: set[str] | None, now: str) -> None:
    """Draws the claims with devices of these resources; None: of all, except claims whose pods simply have them."""
    rows = [
        (
            f"{claim['namespace']}/{claim['name']}",
            claim["phase"],
            _age(claim["since"], now),
            given["resource"],
            ", ".join(given["ids"] or given["devices"]) + (" (to watch)" if given["admin"] else ""),
            ", ".join(claim["pods"]) or "-",
        )
        for claim in (dra or {}).get("claims", ())
        for given in claim["given"]
        if (given["resource"] in names if names is not None else claim["phase"] != DONE)
    ]
    if rows:
        print_line("")
        print_table(CLAIMS, rows, ["" if row[1] == DONE else "yellow" for row in rows], ("pods", "for", "resource"))


def _draw_resources(resources: Iterable[Value], now: str) -> None:
    rows, styles = [], []
    for one in resources:
        registrations, counts, driver = one["registrations"], one["counts"], one["driver"]
        streaming = all(it["streaming"] for it in registrations)
        styles.append("red" if one["failure"] else "" if streaming and not counts["unhealthy"] else "yellow")
        rows.append(
            (
                one["name"],
                ", ".join(it["state"] for it in registrations),
                ", ".join(_age(it["since"], now) for it in registrations),
                *(str(counts[name]) for name in ("healthy", "unhealthy", "held", "free", "lost")),
                " ".join(filter(None, (driver["name"], driver["version"]))),
                f"{_age(driver['listed'], now)} ago" if driver["listed"] else "never",
            )
        )
    print_table(RESOURCES, rows, styles, SPARE)


def _draw_devices(resources: Iterable[Value], now: str, *, whole: bool) -> None:
    found = [(one["name"], device) for one in resources for device in one["devices"] if whole or not device["healthy"]]
    shown = found if whole else found[:MOST_DEVICES]
    if shown:
        print_line("")
        styles = ["" if device["healthy"] else "yellow" for _, device in shown]
        rows = []
        for name, one in shown:
            health = "Healthy" if one["healthy"] else "lost" if one["lost"] else "Unhealthy"
            attributes = " ".join(f"{key}={value}" for key, value in one["attributes"].items())
            holders = ", ".join(map(_holder, one["holders"])) or ("a container" if one["held"] else "-")
            holders += _for(one["held_since"], now)
            age, numa = _age(one["since"], now), ",".join(map(str, one["numa_nodes"]))
            rows.append((name, one["id"], health, age, holders, one["reason"] or "-", numa, attributes))
        print_table(DEVICES, rows, styles, ("attributes", "numa", "for", "resource"))
    if more := len(found) - len(shown):
        print_line(f"and {more} more that are Unhealthy: name a resource to see its devices", "yellow")


def _holder(holder: Value) -> str:
    pod = f"{holder['namespace']}/{holder['pod']}" if holder["pod"] else f"pod {holder['pod_uid']}"
    if claim := holder.get("claim"):  # an older gateway has none
        return f"{pod} (claim {claim})" if holder["pod"] else f"claim {holder['namespace']}/{claim}"
    return f"{pod} ({holder['container']})"


def _draw_events(events: Sequence[Value], names: set[str] | None) -> None:
    """The last events. ``names``: of these resources only; None for all."""
    found = [event for event in events if names is None or event["resource"] in names][-MOST_EVENTS:]
    if found:
        print_line("")
    for event in found:
        about = " ".join(filter(None, (event["resource"], ",".join(event["devices"]))))
        style = {"warning": "yellow", "error": "red", "critical": "red"}.get(event["level"], "")
        print_line(f"{event['time']} {event['level']:<7} {event['message']}{about and f' ({about})'}", style)


def _for(since: str | None, now: str) -> str:
    return f" for {_age(since, now)}" if since else ""


def _age(since: str | None, now: str) -> str:
    """The time since then, in one or two units: `3m12s`, `5h2m`."""
    if not since:
        return "-"
    seconds = max(0, int((datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds()))
    coarse = seconds if seconds < 3600 else seconds // 60 * 60 if seconds < 86400 else seconds // 3600 * 3600
    units = ((coarse // 3600, "h"), (coarse // 60 % 60, "m"), (coarse % 60, "s"))
    return "".join(f"{number}{unit}" for number, unit in units if number) or "0s"
