"""The arguments and results of a kubelet's calls, independent of the API's version (``api.table.Call``)."""

from __future__ import annotations

from dataclasses import dataclass

from dpgateway.model import Allocation

FRONT = "deviceplugin"
"""The name of this front."""


@dataclass(frozen=True, slots=True)
class Options:
    """DevicePluginOptions: the optional RPCs that the kubelet should call."""

    prepare: bool = False
    """PreStartContainer before each container start (1.10 and later)."""
    prefer: bool = False
    """GetPreferredAllocation before Allocate (1.19 and later)."""


@dataclass(frozen=True, slots=True)
class Registration:
    """Register's content."""

    resource: str
    endpoint: str
    """The socket's path, relative to the kubelet's device-plugins directory."""
    options: Options


@dataclass(frozen=True, slots=True)
class Preference:
    """GetPreferredAllocation for one container: choose ``size`` of ``available``, ``must_include`` among them."""

    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Grant:
    """Allocate's answer for one container: the requested ids, and their allocation."""

    ids: tuple[str, ...]
    allocation: Allocation
