"""Events and answers as lines of text, or as JSON, one object a line."""

import json
from collections.abc import Callable
from typing import Any

import click

from dpgateway_simulator.kubelet.events import Event
from dpgateway_simulator.prompt import tables


class Printer:
    """Events and answers as lines of text or JSON, to standard output unless `echo` takes them elsewhere."""

    def __init__(self, output: str, echo: Callable[[str], None] = click.echo) -> None:
        self._json, self._echo = output == "json", echo
        self._began: float | None = None

    def event(self, event: Event) -> None:
        self._began = event.time if self._began is None else self._began
        seconds = event.time - self._began
        if self._json:
            self._echo(json.dumps({"time": round(seconds, 6), "event": event.kind, **event.fields}, default=str))
        else:
            self._echo(f"{seconds:9.3f}  {event}")

    def answer(self, name: str, value: Any) -> None:  # noqa: ANN401
        if self._json:
            self._echo(json.dumps({name: value}, default=str))
        elif name == "capacity":
            self._echo(_rows(value))
        elif name == "table":
            self._echo("\n".join(tables.lines(value)))
        else:
            self._echo(f"{name}: {value if isinstance(value, str) else json.dumps(value)}")


def _rows(value: dict[str, Any]) -> str:
    names = sorted(value["capacity"].keys() | value["allocatable"].keys())
    rows = [(name, value["capacity"].get(name, "-"), value["allocatable"].get(name, "-")) for name in names]
    width = max([len("RESOURCE"), *map(len, names)])
    table = [("RESOURCE", "CAPACITY", "ALLOCATABLE"), *rows]
    return "\n".join(f"{name:<{width}}  {capacity:>8}  {allocatable:>11}" for name, capacity, allocatable in table)
