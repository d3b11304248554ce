"""What doesn't fit DRA: keys without effect, devices and attributes that slices can't have, an API server that can't
be asked. Only for resources with ``front: dra``; events need that server, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec

from dpgateway.cli.ask_drivers import DriverAnswer
from dpgateway.cluster.account import LONGEST, Account
from dpgateway.cluster.server import INSTALL
from dpgateway.config import Document, Place, Problem, ResourceConfig, format_duration
from dpgateway.dra.slices.attributes import resource_value
from dpgateway.dra.slices.names import key, pool_name
from dpgateway.dra.slices.offered import Offered, PoolContent, pool
from dpgateway.errors import ConfigurationError
from dpgateway.kit import unix
from dpgateway.kit.files import TooLongError, read
from dpgateway.model import Device, hardware

MOST_IN_A_CLAIM = 32
"""Devices (AllocationResultsMaxSize, resource/v1/types.go). Of an extended resource a pod has one claim."""
ANSWERED_WITHIN = timedelta(seconds=44)
"""The kubelet waits 45 s for a claim (pkg/kubelet/cm/dra/plugin), and the answer has to reach it."""
MOST = 5
"""Limit of warnings about one pool."""
SOCKET = "plugins/{driver}/dra-00000000.sock"
"""Below the kubelet's root directory."""


def problems(document: Document) -> Iterator[Problem]:
    """What keeps resources by DRA from being served at all."""
    on_dra = [entry for entry in document.entries if entry.on_dra]
    if on_dra and find_spec("lightkube") is None:
        yield Problem(on_dra[0].written.at("front"), hint=INSTALL)
    driver = document.dra.driver
    if driver is not None:
        socket = document.kubelet.root / SOCKET.format(driver=driver)
        if (found := len(os.fsencode(socket))) > unix.LONGEST:
            text = f"its socket has a path of {found} bytes, expected at most {unix.LONGEST}: {socket}"
            yield Problem(Place(str(document.path)).below("dra", "driver"), hint=text)


def warnings(document: Document) -> Iterator[Problem]:
    """Keys that have no effect, or another one than with the device plugin."""
    fronts: dict[str, dict[str, str]] = {}
    for entry in document.entries:
        if entry.resource is not None and entry.resource.pool is not None:
            fronts.setdefault(entry.resource.pool, {})[entry.resource.front] = entry.name
    for entry in document.entries:
        written, one = entry.written, entry.resource
        if one is None or not entry.on_dra:
            continue
        other = fronts.get(one.pool or "", {}).get("deviceplugin")
        if other is not None:
            text = (
                f"its pool has {other} on the device plugin: no hardware is given twice, but the scheduler doesn't "
                "know of the other front. A pod that comes for hardware just given there waits (DRA), or fails (device "
                "plugin)"
            )
            yield Problem(written.at("pool"), hint=text)
        without = "has no effect by DRA:"
        if one.annotations:
            yield Problem(written.at("annotations"), hint=f"{without} containers don't get them")
        if one.cdi == "never":
            yield Problem(written.at("cdi"), hint=f"{without} a claim's answer is the name of a CDI device, always")
        if one.preference != "none":
            yield Problem(written.at("preference"), hint=f"{without} the scheduler takes the first device that fits")
        if one.shares.ids is not None:
            yield Problem(
                written.at("shares"), hint=f"shares.ids {without} a slice has each device once, with its capacity"
            )
        if (together := one.timeouts.allocate + one.timeouts.prepare) > ANSWERED_WITHIN:
            text = (
                f"allocate and prepare are one call by DRA, for which the kubelet waits 45s: found "
                f"{format_duration(together)} together, expected at most {format_duration(ANSWERED_WITHIN)}"
            )
            yield Problem(written.at("timeouts"), hint=text)
        if (value := resource_value(one.name)) != one.name:
            text = f"its name is too long for an attribute: a DeviceClass has to select the resource {value}"
            yield Problem(written.at("name"), hint=text)


def of_account(document: Document, environment: Mapping[str, str] = os.environ) -> Iterator[Problem]:
    """Why the API server can't be asked from here. Events need it, too."""
    if not document.cluster.events and not any(entry.on_dra for entry in document.entries):
        return
    place, account = Place(str(document.path)).below("cluster"), Account.of(document.cluster, environment)
    if document.cluster.events and find_spec("lightkube") is None:
        yield Problem(place.below("events"), hint=INSTALL)
    if not account.server:
        text = "the API server is unknown: in a pod its environment says it, elsewhere set cluster.server, ca and token"
        yield Problem(place.below("server"), hint=text)
        return
    try:
        account.read_token()
    except ConfigurationError as error:
        yield Problem(place.below("token"), hint=str(error))
    try:
        if account.ca is not None:
            read(account.ca, LONGEST, follow=True)
    except TooLongError:  # for the client there is no limit
        pass
    except OSError as error:
        text = f"the certificates of the API server can't be read from {account.ca}: {error.strerror or error}"
        yield Problem(place.below("ca"), hint=text)


def of_devices(answers: Sequence[DriverAnswer], node: str, driver: str) -> Iterator[Problem]:
    """The devices and attributes of this node that don't fit into slices. ``driver``: that of DRA."""
    pools: dict[str, list[DriverAnswer]] = {}
    for answer in answers:
        if answer.resource.front != "deviceplugin":
            config = answer.resource
            pools.setdefault(pool_name(node, config.pool or config.name), []).append(answer)
            if (count := len(answer.devices)) > MOST_IN_A_CLAIM:
                text = f"it has {count} devices, and a pod gets at most {MOST_IN_A_CLAIM} by DRA"
                yield _problem(config, text)
            for hard, ids in [*joint(answer.devices).items()][:MOST]:
                text = f"{', '.join(ids[:MOST])} have {hard} in common: by DRA no claim gets two of them"
                yield _problem(config, f"{text}, so let them be one device")
    for name, some in pools.items():
        made = pool([offered for answer in some for offered in _offered(answer)], driver, {})
        # Devices of one kind lack the same attribute.
        alike: dict[str, list[str]] = {}
        for text in made.unsaid:
            alike.setdefault(text.partition(": ")[2].partition(", found")[0], []).append(text)
        texts = [*made.left_out]
        for first, *more in alike.values():
            texts.append(f"{first}; so with {len(more)} more" if more else first)
        if len(texts) > MOST:
            texts = [*texts[:MOST], f"and {len(texts) - MOST} more; `dpgateway devices --output json` has them all"]
        yield from (_problem(some[0].resource, f"in slices of pool {name}: {text}") for text in texts)


def joint(devices: Iterable[Device]) -> Mapping[str, Sequence[str]]:
    """The ids of the joint devices that have hardware in common, by its name."""
    found: dict[str, list[str]] = {}
    for device in devices:
        for name in hardware(device) if device.joint else ():
            found.setdefault(name, []).append(device.id)
    return {name: ids for name, ids in sorted(found.items()) if len(ids) > 1}


def content(answer: DriverAnswer, driver: str) -> PoolContent:
    """One resource's devices, as slices would have them."""
    return pool(list(_offered(answer)), driver, {})


def _offered(answer: DriverAnswer) -> Iterable[Offered]:
    config = answer.resource
    for one in answer.devices:
        name = key(config.name, config.pool, one.id)
        yield Offered(one, config.name, name, hardware(one), one.health.reason or "", config.shares.count)


def _problem(resource: ResourceConfig, text: str) -> Problem:
    return Problem(Place(resource.where.file, resource.where.line), hint=f"{resource.name}: {text}")
