"""``dpgateway-fpga``: lists the node's boards with their images, and programs them by hand as the gateway would."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import click

from dpgateway import DriverError
from dpgateway.cli import packages
from dpgateway.cli.packages import CONTROL_SOCKET, GatewayError, Settings, Telling, configured, output_option
from dpgateway_fpga.known import Known, boards, reading

COLUMNS = ("board", "state", "image", "programmed", "holder", "fault", "verifies")
_FORCE = click.option("--force", is_flag=True, help="Do it even if a pod holds the board, or if that isn't known.")

EPILOG = """The configuration is the gateway's: --config or DPGATEWAY_CONFIG. Run it as root, on the node.

Exit codes: 0 done, or the board runs what it should; 1 it doesn't, it failed, or it was refused; 2 the configuration or
the usage is wrong."""


@click.group(cls=Telling, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(None, "--version", package_name="dpgateway-fpga", message="dpgateway-fpga %(version)s")
def main() -> None:
    """See what this node's FPGA boards run, and program, verify or reset one by hand.

    The boards are those of the fpga driver's resources in the gateway's configuration. Programming takes the same steps
    as the gateway does before a container starts, under the same lock, and is written down in the same journal; so the
    gateway may run meanwhile.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, each tool would seem to have ended with 0


@main.command("list")
@configured
@CONTROL_SOCKET
@output_option
def list_(settings: Settings, control_socket: Path, output: str) -> None:
    """List the boards, with their images and holders.

    STATE is the board's own word, IMAGE what the journal says that it runs. VERIFIES says how far the board itself can
    tell which image it runs: identity, state or none. HOLDER is "?" where no gateway runs that could tell.
    """
    known = _known(settings)
    try:
        held, unknown = _held(known.values(), control_socket), None
    except GatewayError as error:  # the other columns are of use without a gateway
        held, unknown = None, str(error)
    rows = [_row(one, held) for one in known.values()]
    if output == "json":
        packages.print_json({"boards": rows, "holders_unknown": unknown})
        return
    cells = []
    for row in rows:
        entry, holders = row["programmed"], row["holders"]
        image, at = "-", "-"
        if isinstance(entry, dict):
            image = entry["bitstream"] if entry["state"] == "loaded" else f"{entry['state']} {entry['bitstream']}"
            at = datetime.fromtimestamp(entry["since"], UTC).isoformat().replace("+00:00", "Z")
        holder = "; ".join(holders) or "-" if isinstance(holders, list) else "?"
        cells.append((row["board"], row["state"], image, at, holder, row["fault"] or "-", row["verifies"]))
    packages.print_table(COLUMNS, [tuple(map(str, row)) for row in cells], spare=("verifies", "programmed", "holder"))
    if unknown:
        click.echo(f"the holders aren't known: {unknown}", err=True)
    if not rows:
        click.echo(f"no resource of the driver fpga is configured for this node in {settings.config}", err=True)


@main.command()
@configured
@CONTROL_SOCKET
@click.argument("board")
@click.argument("resource", default="")
@_FORCE
@output_option
def program(  # noqa: PLR0913, PLR0917  one per option
    settings: Settings, control_socket: Path, board: str, resource: str, force: bool, output: str
) -> None:
    """Program BOARD with the bitstream of RESOURCE, and verify it.

    RESOURCE may be left out if only one has the board. A board that runs the bitstream already is left alone. How far
    it is goes to standard error, each step at once and then every 10 s.
    """
    known = _board(settings, board)
    function = known.function(resource)
    _refuse_held(known, control_socket, force=force)
    with _naming(board), Teller(board) as tell:
        function.program(tell)
    _result(known, output, f"board {board} runs {function.options.chosen.id}")


@main.command()
@configured
@click.argument("board")
@click.argument("resource", default="")
@output_option
def verify(settings: Settings, board: str, resource: str, output: str) -> None:
    """Say whether BOARD runs the bitstream of RESOURCE now.

    Asks the board as far as it can tell, else the journal. Touches nothing.
    """
    known = _board(settings, board)
    function = known.function(resource)
    with _naming(board):
        function.verify()
    _result(known, output, f"board {board} runs {function.options.chosen.id}")


@main.command()
@configured
@CONTROL_SOCKET
@click.argument("board")
@_FORCE
@output_option
def reset(settings: Settings, control_socket: Path, board: str, force: bool, output: str) -> None:
    """Reset BOARD, and forget what was programmed onto it.

    What a reset is depends on the programmer; some can't. The gateway then offers the board again, unless the board
    itself says that it is faulty, and programs it before a container gets it.
    """
    known = _board(settings, board)
    _refuse_held(known, control_socket, force=force)
    with _naming(board):
        known.functions[0].reset()
    _result(known, output, f"board {board} is reset")


class Teller:
    """Reports progress on standard error: each new step at once, then again every ``pause`` seconds while it lasts."""

    def __init__(self, board: str, pause: float = 10.0) -> None:
        """``pause``: seconds between repeated reports of one step."""
        self._board, self._pause, self._began = board, pause, time.monotonic()
        self._step = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def __call__(self, step: str) -> None:
        if step != self._step:
            self._step = step
            self._say()

    def _repeat(self) -> None:
        while not self._over.wait(self._pause):
            if self._step:
                self._say()

    def _say(self) -> None:
        # a pipe without a reader mustn't end the work: the board would count as faulty
        with contextlib.suppress(OSError):
            click.echo(f"board {self._board}: {self._step} ({time.monotonic() - self._began:.1f} s)", err=True)


def _known(settings: Settings) -> Mapping[str, Known]:
    try:
        return boards({one.name: one.options for one in packages.resources(settings, "fpga")})
    except OSError as error:
        raise DriverError(f"can't look for the boards of {settings.config}: {error}") from error


def _board(settings: Settings, board: str) -> Known:
    known = _known(settings)
    if board not in known:
        there = f"the boards are {', '.join(known)}" if known else "there are no boards"
        raise DriverError(f"no resource for this node in {settings.config} has a board {board!r}; {there}")
    return known[board]


def _held(known: Iterable[Known], control_socket: Path) -> Mapping[str, Sequence[str]]:
    names = sorted({function.resource for one in known for function in one.functions})
    return packages.holders(control_socket, names)


def _holders(known: Known, held: Mapping[str, Sequence[str]]) -> list[str]:
    ids = dict.fromkeys(one.work.board.id for one in known.functions)  # those of the resources
    return [holder for id_ in ids for holder in held.get(id_, ())]


def _refuse_held(known: Known, control_socket: Path, *, force: bool) -> None:
    if force:
        return
    try:
        holders = _holders(known, _held([known], control_socket))
    except GatewayError as error:
        raise DriverError(
            f"board {known.board.id!r} is left alone, because it isn't known whether a pod holds it: {error}. Start "
            "the gateway, or make sure that no pod uses the board and say --force"
        ) from error
    if holders:
        raise DriverError(
            f"board {known.board.id!r} is left alone, because it is held by {'; '.join(holders)}. Delete the pod "
            "first, or say --force, which changes the board under it"
        )


@contextlib.contextmanager
def _naming(board: str) -> Iterator[None]:
    """Prefixes every error with the board."""
    try:
        yield
    except (DriverError, OSError) as error:
        raise DriverError(f"board {board!r}: {error}") from error


def _result(known: Known, output: str, text: str) -> None:
    if output == "json":
        packages.print_json(_row(known, None))
    else:
        packages.print_line(text)


def _row(known: Known, held: Mapping[str, Sequence[str]] | None) -> dict[str, object]:
    """One board's row in JSON. ``held``: the holders by id; None if they are unknown."""
    work = known.functions[0].work
    found, entry = reading(work), work.entry()
    return {
        "board": known.board.id,
        "resources": [one.resource for one in known.functions],
        "programmer": known.functions[0].options.programmer,
        "verifies": str(work.programmer.verification),
        "state": found.state,
        "identity": found.identity,
        "fault": found.fault or (entry.reason if entry and entry.state == "faulted" else None),
        "programmed": None if entry is None else asdict(entry),
        "holders": None if held is None else _holders(known, held),
    }
