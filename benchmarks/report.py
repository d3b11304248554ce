"""Reports the figures: a table for the terminal, a JSON document, and a page with a plot."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks import machine
from benchmarks.budgets import BUDGETS, BY_DEVICES, BY_RESOURCES, Budget, Figures
from benchmarks.kubelets import StubKubelet, newest_release
from benchmarks.plot import draw

_PAGE = """# What the gateway costs

`make bench` writes this page. It measures all figures in one run, this time on:
{about}.

Two kinds of processes are measured: `dpgateway run` with the `simulated` driver, as on a node, and *bare*, grpc.aio
handlers on the same event loop that know the answer's bytes beforehand, one server per resource. Both take turns. Where
they are compared, the figure is the median of the rounds' ratios. Times are taken at the kubelet's end of the wire. For
a kubelet's restart, a start, memory and idleness the kubelet is {kubelet}.

{table}

{missed}

{plot}

By the number of devices of one resource:

{by_devices}

By the number of resources, of 100 devices each:

{by_resources}

The modules in [benchmarks/](../benchmarks) say how each figure is measured. All figures are in
[results.json](../benchmarks/results.json).
"""


def about() -> str:
    return f"{machine.describe()}, Python {platform.python_version()}, grpcio {version('grpcio')}"


@dataclass(frozen=True)
class Report:
    """One run."""

    about: str
    figures: Figures
    kubelet: str

    @classmethod
    def read(cls, document: Path) -> Report:
        """Reads a file written from ``document()``."""
        found = json.loads(document.read_text())
        return cls(found["about"], found["figures"], found["kubelet"])

    def _measured(self) -> Iterable[tuple[Budget, bool]]:
        for budget in BUDGETS:
            met = budget.met(self.figures)
            if met is not None:
                yield budget, met

    def missed(self) -> Sequence[Budget]:
        return [budget for budget, met in self._measured() if not met]

    def _rows(self) -> list[list[str]]:
        rows = [["what", "measured", "budget", "bare", ""]]
        for budget, met in self._measured():
            other = self.figures.get(budget.against)
            rows.append(
                [
                    budget.what,
                    _with_unit(self.figures[budget.figure], budget.unit),
                    _with_unit(budget.limit_of(self.figures), budget.unit),
                    "" if other is None else _with_unit(other, budget.unit),
                    "met" if met else "missed",
                ]
            )
        return rows

    def table(self) -> str:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    def document(self) -> dict[str, object]:
        budgets = [
            {"what": budget.what, "figure": budget.figure, "limit": budget.limit_of(self.figures), "met": met}
            for budget, met in self._measured()
        ]
        return {"about": self.about, "kubelet": self.kubelet, "budgets": budgets, "figures": self.figures}

    def write_page(self, path: Path) -> None:
        picture = path.with_suffix(".png")
        path.write_text(self.page(picture.name if draw(self.figures, picture) else ""))

    def page(self, picture: str) -> str:
        """``picture``: the name of the plot's file; empty if there is none."""
        return _PAGE.format(
            about=self.about,
            kubelet=self.kubelet,
            table=_markdown(self._rows()),
            missed=self._reasons(),
            plot=f"![How cost grows with devices and with resources]({picture})" if picture else "",
            by_devices=_markdown(self._by_size(BY_DEVICES)),
            by_resources=_markdown(self._by_size(BY_RESOURCES)),
        )

    def _reasons(self) -> str:
        """Each reason once, with the missed budgets that it explains."""
        reasons: dict[str, list[str]] = {}
        for budget in self.missed():
            reasons.setdefault(budget.why % self.figures or "not known yet", []).append(budget.what)
        lines = [f"- {'; '.join(what)}: {why}." for why, what in reasons.items()]
        return "\n".join(["What was missed, and why:", "", *lines]) if lines else "Nothing was missed."

    def _by_size(self, words: Mapping[str, str]) -> list[list[str]]:
        measured = [name.partition("@") for name in self.figures if name.partition("@")[0] in words]
        sizes = sorted({int(size) for _, _, size in measured})
        rows = [["", *(f"{size:,}" for size in sizes)]]
        for name, text in words.items():
            values = [self.figures.get(f"{name}@{size}") for size in sizes]
            rows.append([text, *("" if value is None else _number(value) for value in values)])
        return rows


def kubelet() -> str:
    """The kubelet under which restarts, starts, memory and idleness are measured."""
    release = newest_release()
    return f"the real device manager of Kubernetes {release}" if release else StubKubelet.name


def _number(value: float) -> str:
    """``value`` with three significant digits."""
    return (
        f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.01 or not value else f"{value:.3f}"
    )


def _with_unit(value: float, unit: str) -> str:
    return f"{_number(value)} {unit}"


def rounded(figures: Figures) -> Figures:
    """Sorted and rounded, so that page and document agree."""
    return {name: round(value, 4) for name, value in sorted(figures.items())}


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
