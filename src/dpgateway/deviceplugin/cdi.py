"""Delivers CDI devices to containers: by name where kubelet and runtime know CDI, else expanded.

A kubelet or a runtime that doesn't know CDI silently drops the names, and the container starts without its device. So
names are given only where both are known to pass them on. Elsewhere a name is expanded to its env, mounts and device
nodes, or the Allocate fails. It also fails for a name that no spec has, because the runtime would refuse the container
for ever.

With ``cdi: always`` also an allocation without names gets one, of a spec that the gateway writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from dpgateway.cdi.directories import SpecDirectories, look
from dpgateway.cdi.expansion import expand
from dpgateway.cdi.own import OwnSpecs
from dpgateway.cdi.producer import OWN_NAME
from dpgateway.config.values import CdiKind
from dpgateway.errors import CdiError
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation
from dpgateway.node.runtime import ASKED_WITHIN, CdiSupport

T = TypeVar("T")

PATIENCE = 5.0
"""Timeout in seconds for work on the specs' disk."""
ASK_RUNTIME = (
    "tell the gateway which runtime this is: runtime.socket in its configuration, with the chart runtimeSocket; of the "
    "runtimes that pass CDI names on, containerd tells that from 1.7.2 on, CRI-O from 1.28 on"
)

Asks = Callable[[], Awaitable[CdiSupport]]
"""Asks the runtime for its CDI support."""


@dataclass(frozen=True, slots=True)
class Recipient:
    """The recipient of an allocation, and the conditions for names."""

    resource: str
    ids: tuple[str, ...]
    wanted: CdiKind
    """The resource's key ``cdi``."""
    kubelet: bool | None
    """Whether the kubelet passes names on; None if unknown."""

    def why_expanded(self, runtime: CdiSupport, directories: Iterable[Path]) -> str:
        """Why it gets no names with specs in ``directories``, and the remedy; empty if it gets them."""
        if self.wanted == "never":
            return "of 'cdi: never'"
        if self.kubelet is False:
            return "this kubelet doesn't know CDI"
        if self.kubelet is None:
            return "it isn't known whether this kubelet knows CDI: it doesn't say which version it has"
        if unread := " and ".join(map(str, runtime.unread(*directories))):
            return f"this container runtime reads no specs in {unread}"
        if runtime.by_name is False:
            return "this container runtime doesn't know CDI"
        unknown = f"it isn't known whether this container runtime knows CDI: {ASK_RUNTIME}"
        return "" if runtime.by_name else unknown


class CdiDelivery:
    """Delivery for all resources. Used from the event loop."""

    def __init__(
        self, specs: SpecDirectories, own: OwnSpecs, threads: Threads, runtime: Asks, patience: float = PATIENCE
    ) -> None:
        self._specs, self._own, self._threads = specs, own, threads
        self._runtime, self._patience = runtime, patience
        self.longest = patience + ASKED_WITHIN
        """The most seconds that a delivery takes."""

    async def deliver(self, allocation: Allocation, to: Recipient) -> tuple[Allocation, str]:
        """The allocation in a form that kubelet and runtime accept, and a warning about it, or an empty one.

        Raises CdiError, also for a name that no spec has, and if a spec can't be written.
        """
        # the runtime is asked only where its answer matters
        runtime = await self._runtime() if to.kubelet and to.wanted != "never" else CdiSupport(None)
        return await self._on_thread(partial(self._deliver, allocation, to, runtime))

    def _deliver(self, allocation: Allocation, to: Recipient, runtime: CdiSupport) -> tuple[Allocation, str]:
        """Blocks."""
        always = to.wanted == "always"
        resolved = self._specs.resolve(allocation.cdi_devices)
        # The runtime must read the directory of each spec, and with ``always`` also of the one to be written.
        directories = [*([self._own.directory] if always else []), *{Path(one.file).parent for one in resolved}]
        why = to.why_expanded(runtime, directories)
        if not why:
            return self._own.write(to.resource, to.ids, allocation) if always else allocation, ""
        try:
            expanded = expand(allocation, resolved, look)
        except CdiError as error:
            raise CdiError(f"{error}; it would have to be, because {why}") from None
        warning = f"'cdi: always' gives no CDI devices, but what they stand for, because {why}"
        return expanded, warning if always else ""

    async def expanded(self, allocation: Allocation) -> Allocation:
        """The allocation with its names expanded. Raises CdiError."""
        if not allocation.cdi_devices:
            return allocation
        return await self._on_thread(lambda: expand(allocation, self._specs.resolve(allocation.cdi_devices), look))

    # stored answers

    @staticmethod
    def wrote(name: str) -> bool:
        """Whether the name is of a gateway's own spec."""
        return OWN_NAME.fullmatch(name) is not None

    async def no_links(self, paths: Sequence[str]) -> list[str]:
        """The paths that aren't links, which a runtime would follow to another place. Raises CdiError."""
        return await self._on_thread(lambda: [path for path in paths if not Path(path).is_symlink()])

    async def renew(self, names: Iterable[str], allocation: Allocation | None) -> int:
        """Rewrites the gateway's own specs of these names with the present ``allocation`` of their ids; None: removes
        them, because the hardware is away. Returns the number of changes. Raises CdiError.
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
