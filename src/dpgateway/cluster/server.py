"""Requests to the API server, over lightkube.

An object is plain JSON: all that comes from the server is data to check, whatever its version. Every request has a
deadline. One that the server turned away, with 429 or 503 and a Retry-After, wasn't begun, and is sent again within it.
A request that failed in transit may have been done: the caller looks, and compares.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from typing import Any

from dpgateway.cluster.account import Account
from dpgateway.cluster.client import RenewedClient
from dpgateway.cluster.errors import AWAY, SERVER_ERROR, ClusterError, refusal
from dpgateway.errors import GatewayError
from dpgateway.kit.observable import Observable
from dpgateway.kit.tasks import backoff
from dpgateway.kit.threads import Threads

DEADLINE = 30.0
"""Seconds for an answer."""
PAGE, SLICES = 500, 50
"""Objects of one answer to a list; of slices fewer, because one may have 0.3 MB: 64 devices with 32 attributes each."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
"""Seconds between two requests to a server that is away."""
REPEATED = 120.0
"""Seconds within which whoever needs an answer repeats a request that failed."""
NO_ANSWER = "none"
"""In place of a status, of a request that got none."""
INSTALL = "the client of the API server isn't installed: pip install 'dpgateway[dra]'"

Object = Mapping[str, Any]
"""An object of the API server, as JSON."""


class ObjectKind(Enum):
    """The kinds of objects that the gateway reads or writes: group, version, kind, plural, whether in a namespace."""

    NODE = "", "v1", "Node", "nodes", False
    SLICE = "resource.k8s.io", "v1", "ResourceSlice", "resourceslices", False
    CLAIM = "resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", True
    CLASS = "resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False
    ACCESS = "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False
    EVENT = "events.k8s.io", "v1", "Event", "events", True

    @property
    def plural(self) -> str:
        return self.value[3]


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a list, and the version after which a watch goes on."""

    objects: tuple[Object, ...]
    version: str


class ApiServer:
    """The API server, as one account. Used from the event loop."""

    def __init__(self, account: Account, deadline: float = DEADLINE, threads: Threads | None = None) -> None:
        """``threads``: where the account's files are read; by default on one of its own."""
        self._account, self._deadline, self.url = account, deadline, account.server
        """`url`: its address; empty if it is unknown."""
        self._client = RenewedClient(account, self._answered, deadline, threads or Threads())
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """The requests so far, by verb, plural, and status or NO_ANSWER."""
        self.up: bool | None = None
        """Whether the last request got an answer, whatever it was; None before the first."""
        self.away: Observable[tuple[str, float] | None] = Observable(None)
        """Why the server doesn't answer, and since when on the monotonic clock; None while it does."""
        self._failed = float("-inf")
        """When a request last failed, but for watches, on the loop's clock."""

    async def get(self, kind: ObjectKind, name: str, namespace: str = "", *, patience: float = 0.0) -> Object | None:
        """The object; None if there is none. ``patience``: seconds for which a server that is away is asked again.
        Raises ClusterError.
        """
        options = {"namespace": namespace} if namespace else {}
        what, loop = f"get {kind.plural} {name}", asyncio.get_running_loop()
        end = loop.time() + patience
        failures = 0
        while True:
            try:
                found: Object = await self._ask(what, lambda it: it.get(_of(kind), name, **options), dict)
            except ClusterError as error:
                if error.missing:
                    return None
                failures += 1
                pause = max(error.after, backoff(failures, LONGEST_PAUSE, FIRST_PAUSE)) * random.uniform(1.0, 1.5)  # noqa: S311
                if error.status not in AWAY or loop.time() + pause >= end:
                    raise
            else:
                return found
            await asyncio.sleep(pause)

    async def list(
        self, kind: ObjectKind, fields: Mapping[str, str], keep: Callable[[Object], bool] = lambda _: True
    ) -> Listing:
        """The objects that have these fields. ``keep``: which of them, because a cluster may have more than a node's
        memory. Raises ClusterError.
        """

        async def collected(client: Any) -> Listing:  # noqa: ANN401  of a library that is loaded late
            most = SLICES if kind is ObjectKind.SLICE else PAGE
            found = client.list(_of(kind), chunk_size=most, fields=dict(fields))
            kept = tuple([one async for every in found if keep(one := _sound(every, kind))])
            return Listing(kept, found.resourceVersion)

        listing: Listing = await self._ask(f"list {kind.plural}", collected)
        return listing

    async def changes(
        self, kind: ObjectKind, fields: Mapping[str, str], version: str, seconds: int
    ) -> AsyncIterator[tuple[str, Object]]:
        """The changes after ``version``, as ``ADDED``, ``MODIFIED`` or ``DELETED`` and the object. Never ends; raises
        ClusterError. ``seconds``: after which the server ends each answer, and the client asks for the next.
        """
        options = {"fields": dict(fields), "server_timeout": seconds, "resource_version": version}
        async with contextlib.aclosing((await self._connected()).watch(_of(kind), **options)) as found:
            while True:
                yield await self._ask(
                    f"watch {kind.plural}",
                    lambda _: anext(found),
                    lambda change: (change[0], _sound(change[1], kind)),
                    watch=True,
                )

    async def create(self, kind: ObjectKind, what: Object, *, dry_run: bool = False) -> Object:
        """The object as the server has it. ``dry_run``: as it would have it. Raises ClusterError."""
        check = partial(_sound, kind=kind, stored=not dry_run) if kind is ObjectKind.SLICE else dict
        made: Object = await self._ask(
            f"create {kind.plural}", lambda it: it.create(_of(kind)(what), dry_run=dry_run), check
        )
        return made

    async def replace(self, kind: ObjectKind, what: Object) -> Object:
        """The object as the server has it. Raises ClusterError: CONFLICT if it isn't that of ``resourceVersion``."""
        name = what["metadata"]["name"]
        made: Object = await self._ask(
            f"update {kind.plural} {name}", lambda it: it.replace(_of(kind)(what), name), partial(_sound, kind=kind)
        )
        return made

    async def delete(self, kind: ObjectKind, name: str) -> None:
        """Harmless if there is none. Raises ClusterError."""
        try:
            await self._ask(f"delete {kind.plural} {name}", lambda it: it.delete(_of(kind), name))
        except ClusterError as error:
            if not error.missing:
                raise

    async def close(self) -> None:
        await self._client.close()

    async def _connected(self) -> Any:  # noqa: ANN401  of a library that is loaded late
        """The client. Raises ClusterError."""
        account = self._account
        if not account.server:
            raise ClusterError(
                "the API server is unknown: found no KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT in the "
                "environment, as in each pod; elsewhere set cluster.server, cluster.ca and cluster.token"
            )
        try:
            return await self._client.current()
        except ImportError as error:
            raise ClusterError(f"{INSTALL} ({error})") from error
        except GatewayError as error:
            raise ClusterError(str(error)) from error
        except OSError as error:
            why = f"{account.ca}: {error.strerror or error}"
            raise ClusterError(f"the API server {account.server} can't be asked: {why}") from error

    def _answered(self, verb: str, plural: str, status: int) -> None:
        self.requests[verb, plural, str(status or NO_ANSWER)] += 1
        if verb != "watch" or self._counts(answered=status != 0):
            self.up = status != 0

    async def _ask(
        self,
        what: str,
        ask: Callable[[Any], Awaitable[Any]],
        check: Callable[[Any], object] | None = None,
        *,
        watch: bool = False,
    ) -> Any:  # noqa: ANN401  of a library that is loaded late
        """What the client answers to ``ask``, as JSON if it is an object to ``check``. Raises ClusterError. ``watch``:
        the next change may come at any time (the transport has its deadline), and after an error ``ask`` can't be
        called again.
        """
        where, end = f"{what} at {self._account.server}", asyncio.get_running_loop().time() + self._deadline
        while True:
            try:
                async with asyncio.timeout_at(None if watch else end):
                    answer = await ask(await self._connected())
                    answer = answer if check is None else check(answer)
            except ClusterError as error:
                self._heard(error, watch=watch)
                raise
            except TimeoutError:
                verb, plural, *_ = what.split()
                self._answered(verb, plural, 0)
                self._heard(late := ClusterError(f"{where}: no answer for {self._deadline:g} s", unclear=True))
                raise late from None
            except Exception as error:  # the library, httpx2 and ssl each have errors of their own
                refused = refusal(where, error, self._account.token)
                self._heard(refused, watch=watch)
                pause = refused.after * random.uniform(1.0, 1.5)  # noqa: S311
                if watch or not refused.after or asyncio.get_running_loop().time() + pause >= end:
                    raise refused from error
                await asyncio.sleep(pause)
            else:
                self._heard(None, watch=watch)
                return answer

    def _heard(self, error: ClusterError | None, *, watch: bool = False) -> None:
        """Notes whether the server answers: a refusal is an answer, a gateway's or its own failure (5xx) isn't."""
        answered = error is None or 0 < error.status < SERVER_ERROR
        if watch and not self._counts(answered=answered):
            return
        if answered:
            self.away.set(None)
        else:
            self._failed = asyncio.get_running_loop().time()
            since = self.away.value[1] if self.away.value is not None else time.monotonic()
            self.away.set((str(error), since))

    def _counts(self, *, answered: bool) -> bool:
        """Whether a watch tells if the server answers. One that fails is followed by a list, which tells; and requests
        that fail are repeated. So where only watches fail, or pass, they don't contradict the requests.
        """
        return answered and asyncio.get_running_loop().time() - self._failed >= REPEATED


@cache  # the library refuses a second class for a kind
def _of(kind: ObjectKind) -> Any:  # noqa: ANN401  of a library that is loaded late
    """The library's class for a kind: a dict, without a model of its own, which would cost memory for each version."""
    from lightkube import generic_resource  # noqa: PLC0415

    group, version, name, plural, namespaced = kind.value
    make = generic_resource.create_namespaced_resource if namespaced else generic_resource.create_global_resource
    return make(group, version, name, plural)


def _sound(one: Any, kind: ObjectKind, *, stored: bool = True) -> Object:  # noqa: ANN401  of a library that is loaded late
    """An object as JSON. Without a name and a version, or the parts of a slice that everybody reads, it is an answer
    that can't be read, as any other. ``stored``: else it has neither name nor version yet.
    """
    found = dict(one)
    texts = {"metadata.name": found["metadata"]["name"]} if stored else {}
    if stored:
        int(found["metadata"]["resourceVersion"])
    if kind is ObjectKind.SLICE:
        pool, devices = found["spec"]["pool"], found["spec"].get("devices") or ()
        int(pool.get("generation") or 0)
        texts |= {"spec.pool.name": pool["name"]}
        texts |= {f"spec.devices[{number}].name": device["name"] for number, device in enumerate(devices)}
    for where, text in texts.items():
        if not isinstance(text, str):
            raise TypeError(f"{where}: expected a text, found {text!r}")
    return found
