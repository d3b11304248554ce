"""Prints the running gateway's status once, in as little memory as possible.

`kubectl exec` runs this in the gateway's own container, within the same limit of memory. So ``dpgateway_start`` calls
:func:`main` before it imports the command line: a plain ``status`` needs neither click, nor the log, nor the
configuration. What isn't plain is for ``dpgateway.cli.status``, which prints by :func:`show`, too.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from dpgateway.cli.control_client import NoGateway, asked, current, pieces, understood
from dpgateway.cli.output import apart, print_json, print_line
from dpgateway.cli.picture import draw
from dpgateway.cli.standard import told_in_one_line
from dpgateway.errors import GatewayError

CONTROL_SOCKET = Path("/run/dpgateway/control.sock")
PRESENT = b'{"schema": 2, '
"""How the JSON of the present schema begins."""


class StatusRequest(NamedTuple):
    """The request."""

    resource: str
    """Empty: all."""
    control_socket: Path
    output: str


def main(words: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """The exit code of ``status`` with these arguments; None if they need the whole command line."""
    if (request := plain(words, environment)) is None:
        return None
    try:
        with told_in_one_line():
            return show(request)
    except NoGateway:
        return None
    except GatewayError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


def plain(words: Sequence[str], environment: Mapping[str, str]) -> StatusRequest | None:
    """The request of the plain case: at most a resource, ``--control-socket`` and ``--output``."""
    if environment.get("DPGATEWAY_WATCH") or environment.get("_DPGATEWAY_COMPLETE"):
        return None
    given = {
        "--control-socket": environment.get("DPGATEWAY_CONTROL_SOCKET") or str(CONTROL_SOCKET),
        "--output": environment.get("DPGATEWAY_OUTPUT") or "table",
    }
    resource = ""
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in given:
            given[option] = value if equals else next(rest, "")
        elif word.startswith("-") or not word or resource:
            return None
        else:
            resource = word
    path, output = given["--control-socket"], given["--output"]
    return StatusRequest(resource, Path(path), output) if path and output in {"table", "json"} else None


def show(request: StatusRequest) -> int:
    """Prints the status; returns the exit code. Raises NoGateway if none answers; then nothing is printed."""
    path, resource, output = request.control_socket, request.resource, request.output
    if output == "json" and not resource:
        _copy(path)
        return 0
    # The table of all resources names Unhealthy devices only, so the gateway sends no others.
    answer = _once(path, f"status {resource}" if resource else "summary")
    if answer is None and (answer := _once(path, "status")) is None:  # an older gateway has no summary
        raise NoGateway(f"the gateway at {path} hasn't answered: it closed the connection")
    with understood(path):
        if resource and not answer["resources"]:
            return tell_none(resource, output)
        if output == "json":
            print_json(answer)
        else:
            draw(answer, whole=bool(resource))
    return 0


def tell_none(resource: str, output: str) -> int:
    """Says that the gateway has no such resource; returns the exit code. A program reads standard output as JSON."""
    with apart() if output == "json" else contextlib.nullcontext():
        print_line(f"the gateway has no resource {resource}", "red")
    return 1


def _once(path: Path, request: str) -> Any:  # noqa: ANN401  JSON
    with asked(path, request) as answers:
        return next(answers, None)


def _copy(path: Path) -> None:
    """Prints the JSON as it comes, because it may be megabytes; that of an older gateway in the present schema."""
    answer = pieces(path, "status")
    first = last = b""
    while len(first) < len(PRESENT) and (piece := next(answer, b"")):
        first = last = first + piece
    if not first.startswith(PRESENT):
        whole = b"".join([first, *answer])
        if not whole.endswith(b"\n"):
            raise NoGateway(f"the gateway at {path} hasn't answered: it closed the connection")
        print_json(current(whole, path))
        return
    for last in chain([first], answer):
        sys.stdout.write(last.decode())  # JSON in ASCII
    sys.stdout.flush()
    if not last.endswith(b"\n"):
        raise GatewayError("the gateway ended before it had answered")
