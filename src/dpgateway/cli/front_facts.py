"""Collects the facts about a change of front from the API server and the records, for ``preflight --front``."""

from __future__ import annotations

from pathlib import Path

from dpgateway.cluster.account import Account
from dpgateway.cluster.errors import ClusterError, UnservedApi
from dpgateway.cluster.server import ApiServer, ObjectKind
from dpgateway.config import Configuration
from dpgateway.dra.claims.files import LARGEST
from dpgateway.dra.claims.records import Phase, record
from dpgateway.dra.slices.attributes import resource_value
from dpgateway.kit.files import read
from dpgateway.preflight import DevicesOfClaim
from dpgateway.preflight.front import FrontFacts, FrontName
from dpgateway.switching.classes import why_not

DEADLINE = 5.0
"""Seconds for an answer of the API server."""
RIGHTS = (
    *((verb, ObjectKind.SLICE) for verb in ("get", "list", "watch", "create", "update", "delete")),
    *((verb, ObjectKind.NODE) for verb in ("get", "list", "watch")),
    *((verb, ObjectKind.CLAIM) for verb in ("get", "list")),
    *((verb, ObjectKind.CLASS) for verb in ("list", "watch")),
)
"""The requests of the front: docs/reference/dra.md."""


async def look(configuration: Configuration, node: str, front: FrontName) -> FrontFacts:
    """``node``: its name at the API server."""
    if front == "deviceplugin":
        return FrontFacts(front, configuration.dra.driver)
    server = ApiServer(Account.of(configuration.cluster), DEADLINE)
    try:
        return await _asked(server, configuration, node)
    finally:
        await server.close()


async def _asked(server: ApiServer, configuration: Configuration, node: str) -> FrontFacts:
    driver = configuration.dra.driver
    try:
        denied = []
        for verb, kind in RIGHTS:  # each account may ask that about itself
            group, _, _, plural, _ = kind.value
            asked = {"spec": {"resourceAttributes": {"verb": verb, "group": group, "resource": plural}}}
            answer = await server.create(ObjectKind.ACCESS, asked)
            if not (answer.get("status") or {}).get("allowed"):
                denied.append(f"{verb} {plural}")
    except ClusterError as error:  # nothing else would be answered
        return FrontFacts("dra", driver, unasked=(str(error),))

    unasked, kubelet, runtime, classes, served = [], "", "", None, None
    if "get nodes" not in denied:
        try:
            found = await server.get(ObjectKind.NODE, node)
            info = ((found or {}).get("status") or {}).get("nodeInfo") or {}
            kubelet, runtime = (str(info.get(key) or "") for key in ("kubeletVersion", "containerRuntimeVersion"))
        except ClusterError as error:
            unasked.append(str(error))
    try:
        some = (await server.list(ObjectKind.CLASS, {})).objects
        names = {str((one.get("spec") or {}).get("extendedResourceName") or "") for one in some} - {""}
        classes = {name: why_not(some, name, resource_value(name), driver) if driver else "" for name in names}
        served = True
    except ClusterError as error:
        served = False if isinstance(error, UnservedApi) else None
        if served is None and "list deviceclasses" not in denied:
            unasked.append(f"which classes there are: {error}")
    return FrontFacts("dra", driver, kubelet, classes, served, tuple(denied), tuple(unasked), runtime)


def claimed(state_dir: Path) -> tuple[tuple[DevicesOfClaim, ...], str]:
    """The claims' devices by the gateway's records, and why records can't be read; empty if all can."""
    found: list[DevicesOfClaim] = []
    unread: list[str] = []
    folder = state_dir / "dra" / "claims"
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return (), ""
    except OSError as error:
        return (), str(error)
    for path in paths:
        try:
            one = record(read(path, LARGEST).content.decode(), path.name)
        except (OSError, ValueError, TypeError, KeyError) as error:
            unread.append(f"{path}: {error}")
            continue
        for name in sorted({given.resource for given in one.given}):
            ending = one.phase is Phase.ENDING
            found.append(DevicesOfClaim(str(one), name, one.of(name), one.pods, ending))
    return tuple(found), "; ".join(unread)
