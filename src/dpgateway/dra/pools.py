"""What the resources of a node offer, as the content of their pools."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from dpgateway.dra.slices.attributes import pci_address
from dpgateway.dra.slices.offered import Offered, PoolContent, pool


def pools(
    expected: Iterable[str], offered: Iterable[tuple[str, Sequence[Offered] | None]], driver: str
) -> dict[str, PoolContent | None]:
    """The content of each pool by its name; None while not all of its devices are known. ``expected``: the pools of
    resources that don't offer anything yet; ``offered``: each resource's pool, and what it offers, None if that isn't
    known.
    """
    found: dict[str, list[Offered] | None] = dict.fromkeys(expected)
    for name, some in offered:
        known = found.setdefault(name, [])
        found[name] = None if known is None or some is None else [*known, *some]

    made: dict[str, PoolContent | None] = {}
    for name, some in found.items():
        # The PCIe root complex of each PCI function that has one, pci<domain>:<bus>, by its address.
        roots: dict[str, str] = {}
        for address in {pci_address(one.device) for one in some or ()} - {None}:
            with contextlib.suppress(OSError, StopIteration):
                parts = Path(f"/sys/bus/pci/devices/{address}").resolve(strict=True).parts
                roots[str(address)] = next(part for part in parts if part.startswith("pci"))
        made[name] = None if some is None else pool(some, driver, roots)
    return made
