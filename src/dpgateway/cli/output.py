"""Printing: tables with colour on a terminal, plain columns in a pipe, or JSON."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from dpgateway.errors import printable

Rows = Sequence[Sequence[str]]
COLOURS = {"red": 31, "green": 32, "yellow": 33, "cyan": 36}
"""ECMA-48, SGR: the foreground."""
GAP = 2
"""Spaces between two columns."""
WORD = re.compile(r"^\s+\S+|\S+")
"""A word; the first one includes its indentation."""


def apart() -> contextlib.redirect_stdout[TextIO]:
    """A context for driver code: its prints go to standard error, because standard output is for the result."""
    return contextlib.redirect_stdout(sys.stderr)


def print_json(value: object) -> None:
    _print(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Rows, styles: Sequence[str] = (), spare: Sequence[str] = ()) -> None:
    """Prints a table. ``styles``: rich's style of each row, if any. ``spare``: the columns that a narrow terminal
    drops, in this order; by default all but the first, from the last on.
    """
    head = [column.upper() for column in columns]
    rows = [[printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        whole = [head, *rows]
        widths = [max(len(row[column]) for row in whole) for column in range(len(head))]
        for row in whole:
            _print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return

    from rich.console import Console  # noqa: PLC0415  5 MB, for a terminal only
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console, dropped = Console(highlight=False), [column.upper() for column in spare] or head[:0:-1]
    room = fit({name: [name, *(row[at] for row in rows)] for at, name in enumerate(head)}, dropped, console.width)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, width in room.items():
        table.add_column(name, overflow="fold", width=width)
    for index, row in enumerate(rows):
        cells = [Text(cell) for name, cell in zip(head, row, strict=True) if name in room]
        table.add_row(*cells, style=styles[index] if styles else None)
    console.print(table)
    if left_out := [name for name in head if name not in room]:
        console.print(f"(no room for {', '.join(left_out)})", style="dim")


def print_line(text: str, style: str = "") -> None:
    """Prints one line; ``style``, a key of COLOURS, has an effect only on a terminal."""
    text = printable(text)
    _print(f"\x1b[{COLOURS[style]}m{text}\x1b[0m" if style and sys.stdout.isatty() else text)


def _print(line: str) -> None:
    print(line, flush=True)


def fit(columns: Mapping[str, Sequence[str]], spare: Sequence[str], room: int) -> dict[str, int]:
    """The width of each visible column. Cells are wrapped between words. If the longest words don't fit, columns are
    dropped in the order of ``spare``; words are broken only if no column is left to drop.
    """
    from rich.cells import cell_len  # noqa: PLC0415

    least = {name: max(max(map(cell_len, WORD.findall(cell)), default=0) for cell in columns[name]) for name in columns}
    for name in spare:
        if sum(least.values()) + GAP * (len(least) - 1) > room:
            del least[name]
    widths = {name: max(map(cell_len, columns[name])) for name in least}

    # The widest column shrinks first, letter by letter, down to its longest word.
    left = max(room - GAP * (len(least) - 1), len(least))
    while sum(widths.values()) > left:
        wide = [name for name in widths if widths[name] > least[name]] or list(widths)
        widths[max(wide, key=lambda name: widths[name])] -= 1
    return widths
