"""Printing: tables with colour on a terminal, plain columns in a pipe, JSON where it is asked for."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from typing import TextIO

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpgateway.errors import printable

Rows = Sequence[Sequence[str]]


def apart() -> contextlib.redirect_stdout[TextIO]:
    """A context in which drivers run. What they print goes to standard error; standard output is for the result."""
    return contextlib.redirect_stdout(sys.stderr)


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Rows, styles: Sequence[str] = ()) -> None:
    """``styles``: the style of each row for rich, if any."""
    rows = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, rows, styles)
    else:
        _print_plain([[column.upper() for column in columns], *rows])


def print_line(text: str, style: str = "") -> None:
    """Prints one line; ``style`` (click's foreground colour) has an effect only on a terminal."""
    click.secho(printable(text), fg=style or None)


def _print_rich(columns: Sequence[str], rows: Rows, styles: Sequence[str]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for index, row in enumerate(rows):
        table.add_row(*map(Text, row), style=styles[index] if styles else None)
    Console(highlight=False).print(table)


def _print_plain(rows: Rows) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
