"""Events, answers and tables of devices, as lines of text or as JSON with one object per line.

The step `table`, the command `watch` and the toolbar all format `Kubelet.resources`, so that they agree.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from dpgateway_simulator.kubelet.events import KubeletEvent
from dpgateway_simulator.kubelet.kubelet import Kubelet

Resources = Mapping[str, Mapping[str, Any]]
Row = tuple[str, str, str, str]
HEAD: Row = ("DEVICE", "HEALTH", "NUMA", "HELD BY")
_PLUGIN = {"connected": "", "gone": ", its plugin is gone", "none": ", no plugin"}


class Printer:
    """Events and answers as lines of text or JSON, to standard output unless `echo` takes them elsewhere.

    Events are printed inside the kubelet's own calls, so a failed write must not raise there: `broken` then contains
    the error, `gave_up` is called, and nothing more is written.
    """

    def __init__(self, output: str, echo: Callable[[str], None] = click.echo) -> None:
        self._json, self._write = output == "json", echo
        self._began: float | None = None
        self.broken: OSError | None = None
        self.gave_up: Callable[[], object] = lambda: None

    def event(self, event: KubeletEvent) -> None:
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
            names = sorted(value["capacity"].keys() | value["allocatable"].keys())
            width = max([len("RESOURCE"), *map(len, names)])
            rows = [(name, value["capacity"].get(name, "-"), value["allocatable"].get(name, "-")) for name in names]
            table = [("RESOURCE", "CAPACITY", "ALLOCATABLE"), *rows]
            self._echo("\n".join(f"{one:<{width}}  {count:>8}  {free:>11}" for one, count, free in table))
        elif name == "table":
            self._echo("\n".join(lines(value)))
        elif name in {"slices", "claims"}:
            self._echo("\n".join(columns(value)) or f"no {name}")
        else:
            self._echo(f"{name}: {value if isinstance(value, str) else json.dumps(value)}")

    def _echo(self, text: str) -> None:
        if self.broken is not None:
            return
        try:
            self._write(text)
        except OSError as error:
            self.broken = error
            self.gave_up()


def lines(resources: Resources, limit: int | None = None) -> list[str]:
    """A headline and a table per resource. Beyond `limit` lines, healthy and free devices are only counted."""
    shown: dict[str, list[Row]] = {name: [] for name in resources}
    for name, about in resources.items():
        for device in about["devices"]:
            numa = ",".join(map(str, device["numa"])) or "-"
            shown[name].append((device["id"], device["health"], numa, ", ".join(device["holders"]) or "-"))

    # Common widths align the tables of all resources, and keep a live table from jumping as rows are cut.
    total = sum(2 + len(rows) for rows in shown.values())
    cut = limit is not None and total > limit
    rows = [row for name in shown for row in shown[name]]
    one, two, three = (max(len(row[column]) for row in (HEAD, *rows)) for column in range(3))
    found: list[str] = []
    for name, about in resources.items():
        held = sum(bool(one["holders"]) for one in about["devices"])
        counts = f"{about['allocatable']} of {about['capacity']} allocatable, {held} held"
        found.append(f"{name}: {counts}{_PLUGIN[about['plugin']]}")  # a remark if its plugin is missing
        rows = [row for row in shown[name] if not cut or row[1] != "Healthy" or row[3] != "-"]
        for device, health, numa, holders in (HEAD, *rows) if rows else ():
            found.append(f"  {device:<{one}}  {health:<{two}}  {numa:<{three}}  {holders}")
        left = len(shown[name]) - len(rows)
        found += [f"  ... and {left} healthy and free"] if left else []
    if limit is not None and len(found) > limit:
        found = [*found[: limit - 1], f"... and {len(found) - limit + 1} lines more"]
    return found or ["no resource: no plugin has registered"]


def columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of rows with the same keys, which are its head."""
    if not rows:
        return []
    texts = [[*map(str.upper, rows[0])]]
    texts += [[", ".join(it) if isinstance(it, list) else str(it) for it in row.values()] for row in rows]
    widths = [max(len(row[index]) for row in texts) for index in range(len(texts[0]))]
    cells = [[one or "-" for one in row] for row in texts]
    return ["  ".join(f"{one:<{width}}" for one, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def state(kubelet: Kubelet) -> str:
    """The kubelet in one line: version, state, each resource's allocatable/capacity, number of pods."""
    if kubelet.crashed:
        return f"{kubelet.version} crashed: {kubelet.crashed}"
    if not kubelet.running:
        return f"{kubelet.version} isn't running"
    counts = [f"{name} {about['allocatable']}/{about['capacity']}" for name, about in kubelet.resources().items()]
    pods = f"{len(kubelet.pods)} pod{'s' * (len(kubelet.pods) != 1)}"
    return "  ".join([f"{kubelet.version} runs", *(counts or ["no resource"]), pods])
