"""The client of the running gateway's control socket. Each answer is a line of JSON.

The gateway may have another version than this command: :func:`current` converts an older answer to the present schema.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpgateway.errors import GatewayError, describe
from dpgateway.kit import unix

PATIENCE = 10.0
"""Seconds until the first answer, at most; a busy gateway takes less."""
NEWEST = 2
"""``dpgateway.status.SCHEMA``, without its imports."""

PIECE = 64 * 1024
"""Bytes."""


class NoGateway(GatewayError):
    """No gateway answers."""


def pieces(path: Path, request: str) -> Iterator[bytes]:
    """Sends a request; yields the one answer in pieces, as they arrive. Raises NoGateway if there is none."""
    with _connected(path) as connection:
        try:
            connection.sendall(f"{request}\n".encode(errors="replace"))
            while piece := connection.recv(PIECE):
                yield piece
        except OSError as error:
            raise NoGateway(f"the gateway at {path} hasn't answered: {error}") from error


@contextlib.contextmanager
def asked(path: Path, request: str) -> Iterator[Iterator[Any]]:
    """Sends a request; yields an iterator over the answers as they arrive. Raises NoGateway if there is none."""
    with _connected(path) as connection:
        try:
            connection.sendall(f"{request}\n".encode(errors="replace"))
        except OSError as error:  # it has too many clients
            raise NoGateway(f"the gateway at {path} hasn't answered: {error}") from error
        with connection.makefile("r", encoding="utf-8") as lines:
            yield _answers(connection, lines, path)


@contextlib.contextmanager
def understood(path: Path) -> Iterator[None]:
    """The context in which an answer's fields are read. Raises GatewayError if one is missing, or is another type's."""
    try:
        yield
    except (AttributeError, KeyError, TypeError) as error:
        text = f"the gateway at {path} is of another version than this command, which can't read its answer"
        raise GatewayError(f"{text}: {describe(error)}") from error


def _connected(path: Path) -> socket.socket:
    try:
        return unix.connect(path, seconds=PATIENCE)
    except PermissionError as error:
        raise NoGateway(f"uid {os.geteuid()} may not ask the gateway at {path}; run as root") from error
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NoGateway(f"no gateway is running: nothing answers at {path}") from error
    except OSError as error:
        raise NoGateway(f"the gateway can't be asked: {path}: {error}") from error


def _answers(connection: socket.socket, lines: Iterator[str], path: Path) -> Iterator[Any]:
    try:
        for line in lines:
            yield current(line, path)
            connection.settimeout(None)  # a watch answers again at the next change only
    except (OSError, ValueError) as error:
        raise NoGateway(f"the gateway at {path} hasn't answered: {error}") from error


def current(text: str | bytes, path: Path) -> Any:  # noqa: ANN401  JSON
    """The answer in the present schema. Schema 1 had one registration per resource, the device plugin's. Raises
    NoGateway if it is a newer gateway's, or another program's.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoGateway(f"the gateway at {path} hasn't answered: {error}") from error
    other = f"no gateway answers at {path}, but another program: expected a status"
    if not isinstance(answer, dict) or not isinstance(schema := answer.get("schema", NEWEST), int):
        raise NoGateway(other)
    if schema > NEWEST:
        raise NoGateway(f"the gateway at {path} is newer than this command: found schema {schema}, expected {NEWEST}")
    if answer.keys().isdisjoint({"configuration", "resources"}):
        raise NoGateway(other)
    try:
        if schema == 1:
            for resource in answer["resources"]:
                resource["registrations"] = [{"front": "deviceplugin", **resource.pop("registration")}]
            answer["schema"] = 2
        if refusal := answer.get("reloads", {}).get("refusal"):
            refusal.setdefault("served", "the old one goes on")  # the first gateways fell back to nothing else
    except (AttributeError, KeyError, TypeError) as error:
        raise NoGateway(other) from error
    return answer
