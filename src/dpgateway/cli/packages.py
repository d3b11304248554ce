"""The API for the command of a driver's package: its resources and options, the holders of its devices, and printing.

docs/reference/drivers.md describes the names. Such a command is a ``Telling`` group of click commands with the options
of ``configured``, ``output_option`` and ``CONTROL_SOCKET``, so that it works like `dpgateway` itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dpgateway.cli.control_client import asked, understood
from dpgateway.cli.group import Telling
from dpgateway.cli.options import CONTROL_SOCKET, Settings, configured, output_option
from dpgateway.cli.output import apart, print_json, print_line, print_table
from dpgateway.cli.reading import read_whole
from dpgateway.config import ResourceConfig
from dpgateway.errors import ConfigurationError, GatewayError

__all__ = [
    "CONTROL_SOCKET",
    "GatewayError",
    "Settings",
    "Telling",
    "apart",
    "configured",
    "holders",
    "output_option",
    "print_json",
    "print_line",
    "print_table",
    "resources",
]


class NotServed(GatewayError):
    """The running gateway doesn't serve the resource, or has no list of its devices yet."""


def resources(settings: Settings, driver: str) -> Sequence[ResourceConfig]:
    """The node's resources of one driver, with their options. Raises ConfigurationError."""
    with apart():
        _, configuration = read_whole(settings)
    ours = [one for one in configuration.resources if one.driver == driver]
    if failed := [f"{one.name}: {one.failure}" for one in ours if one.failure is not None]:
        raise ConfigurationError("\n".join(failed))
    return ours


def holders(control_socket: Path, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """The holders of these resources' devices according to the running gateway, as texts, keyed by the driver's id.
    Raises GatewayError if no gateway runs, or if it doesn't serve all of the resources.
    """
    held: dict[str, list[str]] = {}
    with asked(control_socket, "status") as answers:
        status = next(iter(answers), None)
    with understood(control_socket):
        known = {one["name"]: one for one in status["resources"]} if status else {}
        if missing := [name for name in names if name not in known]:
            raise NotServed(f"the running gateway doesn't serve {', '.join(missing)}")
        for name in names:
            if known[name]["failure"] or not known[name]["started"]:
                raise NotServed(f"the running gateway has no list of devices for {name}; `dpgateway status` says why")
            for device in known[name]["devices"]:
                if device["held"]:
                    pods = [f"{one['namespace']}/{one['pod']}" for one in device["holders"] if one["pod"]]
                    held.setdefault(device["device"], []).append(f"{', '.join(pods) or 'a container'} as {name}")
    return held
