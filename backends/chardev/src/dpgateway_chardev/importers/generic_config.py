"""generic-device-plugin's configuration format: ``--device`` and ``--domain``, or the same in its file.

Source: squat/generic-device-plugin, config.go, main.go, deviceplugin/{path,usb}.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from dpgateway import refuse
from dpgateway.importing import InvalidConfiguration, Problem, Source, Written, flags, typed

DOMAIN = "squat.ai"
_EXPECTED = "--device flags, or a file with `devices`"


@dataclass(frozen=True, slots=True)
class Path:
    """A path or glob of a group."""

    path: str
    mountPath: str = ""
    permissions: str = "mrw"
    readOnly: bool = False
    type: Literal["Device", "Mount"] = "Device"
    limit: int = 1
    optional: bool = False

    def __post_init__(self) -> None:
        if not set(self.permissions) <= set("mrw") or len(set(self.permissions)) < len(self.permissions):
            raise ValueError(f"permissions: expected some of m, r and w, found {self.permissions!r}")


@dataclass(frozen=True, slots=True)
class UsbModel:
    """USB devices."""

    vendor: str
    product: str
    serial: str = ""

    def __post_init__(self) -> None:
        refuse(
            f"{key}: expected at most four hexadecimal digits, found {text!r}"
            for key, text in (("vendor", self.vendor), ("product", self.product))
            if not re.fullmatch("[0-9A-Fa-f]{1,4}", text)
        )


@dataclass(frozen=True, slots=True)
class DevicePaths:
    """A group: the paths, or the USB devices, of one device."""

    paths: tuple[Path, ...] = ()
    usb: tuple[UsbModel, ...] = ()
    count: int = 1

    def __post_init__(self) -> None:
        if bool(self.paths) == bool(self.usb):
            raise ValueError("expected either paths or usb")


@dataclass(frozen=True, slots=True)
class GenericDevice:
    """A resource."""

    name: str
    groups: tuple[DevicePaths, ...]

    def __post_init__(self) -> None:
        if not self.groups:
            raise ValueError("groups: expected at least one group")
        if not re.fullmatch("[a-z0-9][-a-z0-9]*[a-z0-9]", self.name.strip()):
            raise ValueError(f"name: expected two or more of a-z, 0-9 and -, found {self.name!r}")


@dataclass(frozen=True, slots=True)
class GenericFile:
    """The whole configuration."""

    domain: str
    devices: tuple[tuple[Written, GenericDevice], ...]


def configured(source: Source) -> GenericFile:
    """The plugin's configuration in ``source``. Raises InvalidConfiguration."""
    domain, devices = DOMAIN, list[Written]()
    for config in source.configs("groups"):
        domain = _text(config, "domain") or domain
        devices += [one for key in ("device", "devices") for one in _items(config.below(key))]
    commands = [list(flags(words)) for words in source.commands()]
    ours = [pairs for pairs in commands if any(name == "device" for name, _ in pairs)] or commands
    flagged = [pair for pairs in ours for pair in pairs]
    domain = next((str(value.value) for name, value in flagged if name == "domain"), domain)
    given = [_of_flag(source, value) for name, value in flagged if name == "device"]
    devices = given or devices  # a flag outweighs the file
    if not devices:
        raise source.nothing(_EXPECTED)
    problems: list[Problem] = []
    read = [(one, typed(one, GenericDevice, problems)) for one in devices]
    if problems:
        raise InvalidConfiguration(problems)
    return GenericFile(domain, tuple((written, device) for written, device in read if device is not None))


def _of_flag(source: Source, value: Written) -> Written:
    inner = source.inner(value)
    if inner is None:
        raise InvalidConfiguration([Problem(value.place, "an empty --device", "a mapping with the keys name, groups")])
    return _digits(inner)


def _digits(written: Written) -> Written:
    """Restores USB ids that YAML read as numbers: the plugin accepts unquoted digits in a flag, but not in its file."""
    if isinstance(written.value, list):
        return replace(written, value=[_digits(one) for one in written.value])
    if isinstance(written.value, dict):
        values: dict[str, Written] = {}
        for key, one in written.value.items():
            number = key in {"vendor", "product"} and type(one.value) is int
            values[key] = replace(one, value=one.text) if number else _digits(one)
        return replace(written, value=values)
    return written


def _text(config: Written, key: str) -> str:
    part = config.below(key)
    return part.value if part and isinstance(part.value, str) else ""


def _items(part: Written | None) -> list[Any]:
    return part.value if part and isinstance(part.value, list) else []
