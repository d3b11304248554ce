"""What a kubelet and a resource say to each other, in no version's words: the values of the calls in ``api``."""

from __future__ import annotations

from dataclasses import dataclass

from dpgateway.model import Allocation

FRONT = "deviceplugin"
"""The name of this front."""


@dataclass(frozen=True, slots=True)
class Options:
    """DevicePluginOptions: which optional RPCs the kubelet should call."""

    prepare: bool = False
    """PreStartContainer before each container start (1.10 and later)."""
    prefer: bool = False
    """GetPreferredAllocation before Allocate (1.19 and later)."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What Register says of a resource."""

    resource: str
    endpoint: str
    """The socket, relative to the kubelet's device-plugins directory."""
    options: Options


@dataclass(frozen=True, slots=True)
class Preference:
    """GetPreferredAllocation for one container: choose ``size`` of ``available``, ``must_include`` among them."""

    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Grant:
    """Allocate's answer for one container: the ids that it asked for, and what it gets with them."""

    ids: tuple[str, ...]
    allocation: Allocation
