"""Plots the costs against devices and resources, the gateway beside bare handlers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.budgets import BUDGETS, Figures

_PANELS = (
    ("first list, p50 (ms)", "devices", {"gateway": "first_list.gateway.ms", "bare": "first_list.bare.ms"}),
    ("health flip, p50 (ms)", "devices", {"gateway": "flip.gateway.ms", "bare": "flip.bare.ms"}),
    ("new kubelet to all lists, p50 (ms)", "resources", {"gateway": "restart.gateway.ms", "bare": "restart.bare.ms"}),
    ("resident size (MB)", "resources", {"gateway": "memory.gateway.mb", "bare": "memory.bare.mb"}),
)
_COLOURS = {"gateway": "#2563eb", "bare": "#9ca3af"}


def draw(figures: Figures, path: Path) -> bool:
    """Draws the plot. Returns False without matplotlib, or if a necessary figure wasn't measured."""
    if not all(_points(figures, prefix) for _, _, lines in _PANELS for prefix in lines.values()):
        return False
    try:
        import matplotlib as mpl  # noqa: PLC0415  an optional group of dependencies
    except ModuleNotFoundError:
        print("no plot without matplotlib: pip install --group bench", file=sys.stderr)
        return False
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(2, 2, figsize=(9, 6.5), layout="constrained")
    for panel, (title, across, lines) in zip(axes.flat, _PANELS, strict=True):
        for name, prefix in lines.items():
            _line(panel, name, figures, prefix)
        _limits(panel, lines["gateway"])
        panel.set(title=title, xlabel=across)
        _scale(panel, across, max(max(line.get_ydata()) for line in panel.lines))
        panel.grid(visible=True, alpha=0.3)
        panel.legend(frameon=False)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return True


def _scale(panel: Any, across: str, biggest: float) -> None:  # noqa: ANN401  comes without types
    """Logarithmic across devices, which are powers of ten, and for their times if any exceeds 10 ms."""
    panel.set_xscale("log" if across == "devices" else "linear")
    if across == "devices" and biggest > 10:
        panel.set_yscale("log")
    else:
        panel.set_ylim(0, None)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter("{x:,g}")


def _line(panel: Any, name: str, figures: Figures, prefix: str) -> None:  # noqa: ANN401  comes without types
    panel.plot(*zip(*_points(figures, prefix), strict=True), marker="o", color=_COLOURS[name], label=name)


def _points(figures: Figures, prefix: str) -> list[tuple[int, float]]:
    """Size and value of each figure named ``prefix@size``."""
    return sorted((int(key.partition("@")[2]), value) for key, value in figures.items() if key.startswith(f"{prefix}@"))


def _limits(panel: Any, prefix: str) -> None:  # noqa: ANN401  comes without types
    """Marks the budgets of this panel's figures."""
    points = [(int(b.figure.partition("@")[2]), b.limit) for b in BUDGETS if b.figure.startswith(f"{prefix}@")]
    if points:
        panel.plot(*zip(*points, strict=True), linestyle="", marker="_", markersize=14, color="#dc2626", label="budget")
