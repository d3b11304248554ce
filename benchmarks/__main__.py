"""``python -m benchmarks``: measures, prints the budgets, and writes docs/benchmarks.md, its plot, and the figures."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from benchmarks import allocate, asking, dra, first_list, flip, growth, idle, matched, pages, restart, start
from benchmarks.budgets import Figures
from benchmarks.processes import ROOT
from benchmarks.report import Report, about, kubelet, rounded

Measure = Callable[[Path, float], Awaitable[Figures]]

MEASUREMENTS: dict[str, Measure] = {
    "allocate": allocate.measure,
    "first_list": first_list.measure,
    "flip": flip.measure,
    "restart": restart.measure,
    "start": start.measure,
    "growth": growth.measure,
    "idle": idle.measure,
    "pages": pages.measure,
    "dra": dra.measure,
    "matched": matched.measure,
    "asking": asking.measure,
}
_FIGURES = Path(__file__).with_name("results.json")
_PAGE = ROOT / "docs" / "benchmarks.md"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="MEASUREMENT", help=f"all, or some of {', '.join(MEASUREMENTS)}")
    parser.add_argument("--effort", type=float, default=1.0, help="how many rounds: 1 takes some 6 minutes")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a budget is missed")
    parser.add_argument(
        "--json", type=Path, help=f"where to write the figures; default for all measurements: {_FIGURES.name}"
    )
    parser.add_argument(
        "--page", type=Path, help=f"where to write the page and its plot; default for all measurements: {_PAGE.name}"
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="with some measurements: write figures and page, with the last run's figures of all the others",
    )
    parser.add_argument(
        "--rewrite", action="store_true", help="measure nothing: write the page again from the figures of the last run"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(MEASUREMENTS):
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}")
    if options.update or (not options.names and options.effort >= 1):
        options.json, options.page = options.json or _FIGURES, options.page or _PAGE
    return options


async def measure(names: list[str], effort: float) -> Figures:
    figures: Figures = {}
    for name in names or MEASUREMENTS:
        began = time.monotonic()
        print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="dpgateway-bench-") as folder:
            figures |= await MEASUREMENTS[name](Path(folder), effort)
        print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return figures


def kept(last: Figures, names: list[str]) -> Figures:
    """The last run's figures, without the figures of the measurements ``names``."""
    return {figure: value for figure, value in last.items() if figure.partition(".")[0] not in names}


def main() -> int:
    options = arguments()
    if options.rewrite:
        picture = _PAGE.with_suffix(".png")
        _PAGE.write_text(Report.read(_FIGURES).page(picture.name if picture.exists() else ""))
        return 0
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(measure(options.names, options.effort))
    if options.update:
        figures = kept(Report.read(_FIGURES).figures, options.names) | figures
    report = Report(about(), rounded(figures), kubelet())
    print(report.table())
    if options.json:
        options.json.write_text(json.dumps(report.document(), indent=2) + "\n")
    if options.page:
        report.write_page(options.page)
    return 1 if options.strict and report.missed() else 0


if __name__ == "__main__":
    sys.exit(main())
