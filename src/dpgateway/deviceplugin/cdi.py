"""How CDI names reach containers: by name, where kubelet and runtime know CDI, else as what they stand for.

A kubelet or a runtime that doesn't know CDI drops the names in silence, and the container starts without its device. So
names are given only where both are known to pass them on. Elsewhere what the names stand for is said in words that
every kubelet knows, or the Allocate fails. It also fails for a name that stands for nothing, because the runtime would
refuse the container again and again.

With ``always`` what a resource gives without names gets one, too, by a spec that the gateway writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from dpgateway.cdi.directories import SpecDirectories, look
from dpgateway.cdi.expansion import Resolved, expand
from dpgateway.cdi.making import OWN_NAME
from dpgateway.cdi.own import OwnSpecs
from dpgateway.config.values import CdiKind
from dpgateway.errors import CdiError
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation
from dpgateway.node.runtime import CdiSupport

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds that the specs' disk has to answer."""
ASK_RUNTIME = (
    "tell the gateway which runtime this is: runtime.socket in its configuration, with the chart runtimeSocket; of the "
    "runtimes that pass CDI names on, containerd tells that from 1.7.2 on, CRI-O from 1.28 on"
)

Asks = Callable[[], Awaitable[CdiSupport]]
"""Finds out what the runtime does with names."""


def by_name(wanted: CdiKind, kubelet: bool | None, runtime: bool | None) -> bool:
    """Whether names may be given. ``kubelet``, ``runtime``: whether they pass names on; None if that isn't known."""
    return wanted != "never" and kubelet is True and runtime is True


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asks, and what the configuration says of it."""

    resource: str
    ids: tuple[str, ...]
    wanted: CdiKind
    kubelet: bool | None
    """Whether it passes names on."""


class Cdi:
    """One for all resources; used from the event loop."""

    def __init__(
        self, specs: SpecDirectories, own: OwnSpecs, threads: Threads, runtime: Asks, patience: float = PATIENCE
    ) -> None:
        self._specs, self._own, self._threads = specs, own, threads
        self._runtime, self._patience = runtime, patience

    async def passed(self, allocation: Allocation, asked: Asked) -> tuple[Allocation, str]:
        """The allocation as kubelet and runtime can take it, and what may be wrong with that; empty if nothing.

        Raises CdiError, also for a name that stands for nothing, and if a spec can't be written.
        """
        asks = by_name(asked.wanted, asked.kubelet, runtime=True)
        runtime = await self._runtime() if asks else CdiSupport(None)
        return await self._on_thread(
            partial(self._always if asked.wanted == "always" else self._passed, allocation, asked, runtime)
        )

    @staticmethod
    def wrote(name: str) -> bool:
        """Whether it is a device of a spec that a gateway wrote."""
        return OWN_NAME.fullmatch(name) is not None

    async def expanded(self, allocation: Allocation) -> Allocation:
        """The allocation with what its names stand for in their place. Raises CdiError."""
        if not allocation.cdi_devices:
            return allocation
        return await self._on_thread(lambda: expand(allocation, self._specs.resolve(allocation.cdi_devices), look))

    async def no_links(self, paths: Sequence[str]) -> list[str]:
        """Those that no runtime follows to another place. Raises CdiError."""
        return await self._on_thread(lambda: [path for path in paths if not Path(path).is_symlink()])

    async def renew(self, names: Iterable[str], allocation: Allocation | None) -> int:
        """Has the gateway's own specs of these names say what their ids give now; None: nothing, so there are none.
        Returns how many changed. Raises CdiError.
        """
        try:
            return await self._on_thread(partial(self._own.renew, tuple(names), allocation))
        except OSError as error:
            raise CdiError(f"a CDI spec can't be made anew: {error}") from error

    async def _on_thread(self, function: Callable[[], T]) -> T:
        try:
            return await self._threads.call_within("CDI specs", function, self._patience)
        except TimeoutError:
            read = "the CDI specs, and what the gateway remembers of its own in state_dir, haven't been read"
            raise CdiError(f"{read} for {self._patience:g} s: a disk hangs, or there are too many specs") from None

    def _always(self, allocation: Allocation, asked: Asked, runtime: CdiSupport) -> tuple[Allocation, str]:
        """Blocks."""
        resolved = self._specs.resolve(allocation.cdi_devices)
        places = self._own.directory, *_directories(resolved)
        if by_name(asked.wanted, asked.kubelet, runtime.of(*places)):
            return self._own.write(asked.resource, asked.ids, allocation), ""
        why = _why_not(asked, runtime, places)
        given = _expanded(allocation, resolved, why)
        return given, f"'cdi: always' gives no CDI devices, but what they stand for, because {why}"

    def _passed(self, allocation: Allocation, asked: Asked, runtime: CdiSupport) -> tuple[Allocation, str]:
        """Blocks."""
        resolved = self._specs.resolve(allocation.cdi_devices)
        places = tuple(_directories(resolved))
        if by_name(asked.wanted, asked.kubelet, runtime.of(*places)):
            return allocation, ""
        return _expanded(allocation, resolved, _why_not(asked, runtime, places)), ""


def _why_not(asked: Asked, runtime: CdiSupport, places: Iterable[Path]) -> str:
    """Why names aren't given, and what to do about it if that is for want of knowledge."""
    if asked.wanted == "never":
        return "of 'cdi: never'"
    if asked.kubelet is False:
        return "this kubelet doesn't know CDI"
    if asked.kubelet is None:
        return "it isn't known whether this kubelet knows CDI: it doesn't say which version it has"
    if unread := " and ".join(map(str, runtime.unread(*places))):
        return f"this container runtime reads no specs in {unread}"
    if runtime.by_name is False:
        return "this container runtime doesn't know CDI"
    return f"it isn't known whether this container runtime knows CDI: {ASK_RUNTIME}"


def _expanded(allocation: Allocation, resolved: Sequence[Resolved], why: str) -> Allocation:
    """Raises CdiError."""
    try:
        return expand(allocation, resolved, look)
    except CdiError as error:
        raise CdiError(f"{error}; it would have to be, because {why}") from None


def _directories(resolved: Iterable[Resolved]) -> set[Path]:
    """Where the specs are that names stand for."""
    return {Path(one.file).parent for one in resolved}
