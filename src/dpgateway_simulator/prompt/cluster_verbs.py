"""The verbs that act on the cluster: pods that wait, classes, claims, slices, and the API server's faults."""

from collections.abc import Callable
from functools import partial
from typing import Any

from dpgateway_simulator.apiserver import SimulatedApiServer
from dpgateway_simulator.apiserver.admitting import FIELDS
from dpgateway_simulator.cluster.cluster import SimulatedCluster
from dpgateway_simulator.prompt.session import (
    Act,
    Session,
    StepError,
    WordsError,
    at_once,
    exactly,
    number,
    pod_containers,
    wordless,
)

PHASES = ("Pending", "Running", "Failed", "Terminating", "Gone")
FAULTS = (
    "down | up | hang | resume | compact | wipe | gate GATE on|off | answer STATUS REQUEST | forbid VERB KIND | allow"
)


def cluster_of(session: Session) -> SimulatedCluster:
    """Raises StepError."""
    if session.cluster is None:
        raise StepError("there is no API server: give simulate --api-port")
    return session.cluster


def pod_words(words: list[str]) -> dict[str, Any]:
    """`[init:|sidecar:][CONTAINER:]RESOURCE=N` and `[CONTAINER:]claim=NAME`, as the arguments of a cluster's pod."""
    claims: dict[str, list[str]] = {}
    for word in [one for one in words if "claim=" in one]:
        place, _, claim = word.rpartition("claim=")
        claims.setdefault(claim, []).append(place.rstrip(":") or "c")
    app, init = pod_containers(word for word in words if "claim=" not in word)
    sidecars = {one["name"]: one["resources"] for one in init if "restartPolicy" in one}
    first = {one["name"]: one["resources"] for one in init if "restartPolicy" not in one}
    containers = {one["name"]: one["resources"] for one in app}
    return {"containers": containers, "init": first, "sidecars": sidecars, "claims": claims}


def create(words: list[str]) -> Act:
    if not words:
        raise WordsError("found nothing, expected POD RESOURCE=N ...")
    name, given = words[0], pod_words(words[1:])
    return at_once(lambda session: cluster_of(session).create(name, **given))


def phase(words: list[str]) -> Act:
    text = ""
    if "because" in words:
        at = words.index("because")
        words, text = words[:at], " ".join(words[at + 1 :])
    name, wanted = exactly(words, "POD", "PHASE")
    if wanted not in PHASES:
        raise WordsError(f"found {wanted!r}, expected {', '.join(PHASES)}")
    return lambda session: cluster_of(session).until(name, wanted, because=text, within=session.patience)


def device_class(words: list[str]) -> Act:
    name, driver, resource = exactly(words, "NAME", "DRIVER", "RESOURCE")
    chosen = {"resource": resource}
    return at_once(lambda session: cluster_of(session).device_class(name, driver, resource=resource, attributes=chosen))


def claim(words: list[str]) -> Act:
    name, class_, count = exactly([*words, "1"] if len(words) == 2 else words, "NAME", "CLASS", "COUNT")
    exact = {"deviceClassName": class_, "count": int(number(count, "a number of devices"))}
    return at_once(lambda session: cluster_of(session).claim(name, {"name": "r", "exactly": exact}))


def api(words: list[str]) -> Act:
    match words:
        case ["down" | "up" | "hang" | "resume" | "compact" | "wipe" | "allow"] | ["forbid", _, _]:
            pass
        case ["gate", name, "on" | "off"] if name in FIELDS:
            pass
        case ["answer", status, *request] if request and status.isdecimal():
            pass
        case _:
            raise WordsError(f"found {' '.join(words)!r}, expected {FAULTS}; gates: {', '.join(FIELDS)}")
    return lambda session: _act(cluster_of(session).server, words)


async def _act(server: SimulatedApiServer, words: list[str]) -> None:
    store = server.store
    match words:
        case ["down"]:
            await server.down()
        case ["up"]:
            await server.down()
            await server.up()
        case ["gate", name, state]:
            (store.off.add if state == "off" else store.off.discard)(name)
        case ["answer", status, *request]:
            server.faults.append((" ".join(request), int(status), {"Retry-After": "1"}))
        case ["forbid", verb, kind]:
            server.forbidden.add((verb, kind))
        case [other]:
            plain: dict[str, Callable[[], object]] = {
                "hang": server.hang,
                "resume": server.resume,
                "compact": store.compact,
                "wipe": partial(store.wipe, "resourceslices", {}),
                "allow": server.forbidden.clear,
            }
            plain[other]()


slices = wordless(at_once(lambda session: session.write("slices", cluster_of(session).inventory())))
claims = wordless(at_once(lambda session: session.write("claims", cluster_of(session).claims())))
