"""What a random life was made of, in a line: without switches and refusals it shows little."""

import time
from collections import Counter
from collections.abc import Iterable

from dpgateway_simulator import KubeletEvent
from tests.end_to_end.fronts_node import NAMES, FrontsNode, short

LONG = 10.0
"""Seconds of a pod's start that are long."""


class Figures:
    """Of one life, or of several: see `add`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.longest = 0.0
        """Seconds from a pod's creation until it ran."""
        self._created: dict[str, float] = {}
        self._front: dict[tuple[str, str], str] = {}
        """`_front` contains the front that last offered something, keyed by node and resource."""

    def created(self, pod: str) -> None:
        self.counts["pods"] += 1
        self._created[pod] = time.monotonic()

    def heard(self, event: KubeletEvent) -> None:
        """An event of a kubelet."""
        if event.kind == "pod refused":
            self.counts["refused"] += 1
        elif event.kind == "prepare failed":
            self.counts["prepares refused"] += 1
        elif event.kind == "pod running" and (began := self._created.pop(event.fields["pod"], None)) is not None:
            waited = time.monotonic() - began
            self.counts["ran"] += 1
            self.counts[f"after {LONG:g} s"] += waited > LONG
            self.longest = max(self.longest, waited)

    def look(self, nodes: Iterable[FrontsNode]) -> None:
        """Which front offers what, now. A change that passes between two looks isn't seen."""
        for node in nodes:
            for name in NAMES:
                fronts = {"deviceplugin": node.on_list(name), "dra": node.in_slices(name)}
                offering = [front for front, devices in fronts.items() if devices]
                if len(offering) != 1:
                    continue
                key, (front,) = (node.name, name), offering
                if self._front.get(key, front) != front:
                    self.counts["switches"] += 1
                    self.counts[f"to {front}"] += 1
                    self.counts[f"of {short(name).lower()}"] += 1
                self._front[key] = front

    def add(self, other: "Figures") -> None:
        self.counts += other.counts
        self.longest = max(self.longest, other.longest)

    def __str__(self) -> str:
        told = ", ".join(f"{name}: {count}" for name, count in sorted(self.counts.items()) if count)
        return f"{told}; longest wait for a start {self.longest:.1f} s"
