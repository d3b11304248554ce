"""generic-device-plugin's configuration format: flags, or the same in its file, or in MicroShift's.

Source: squat/generic-device-plugin, config.go, main.go, deviceplugin/{path,usb}.go; openshift/microshift,
docs/user/howto_config.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from dpgateway import refuse
from dpgateway.importing import Entries, InvalidConfiguration, NotKept, Source, Written, flags, items, text

_DOMAIN, _OLD_DOMAIN, _CHANGED = "devic.es", "squat.ai", (0, 2, 0)
"""The default domain, and the one before the version that changed it."""
_UNKNOWN_VERSION = (
    f"the default domain depends on the plugin's version, which this file doesn't have: it is {_DOMAIN} since 0.2.0, "
    f"and {_OLD_DOMAIN} before; see what your pods ask for"
)
_MICROSHIFT, _MICROSHIFT_DOMAIN = "genericDevicePlugin", "device.microshift.io"
_DISABLED = "MicroShift doesn't serve it, because its status there is Disabled"
_IMAGE = "generic-device-plugin"
_CHARTS = "gabe565"
"""The publisher whose chart sets the variable DOMAIN to squat.ai."""
_WRITTEN = re.compile(r"^[^#\n]*--domain[\"',=\s]+([a-z0-9-]+\.[a-z0-9.-]+)", re.MULTILINE)
"""The flag in a language that isn't read here, such as Terraform's."""
_EXPECTED = "--device flags, or a file with `devices`"


@dataclass(frozen=True, slots=True)
class Path:
    """A path or glob of a group."""

    path: str
    mountPath: str = ""
    permissions: str = "mrw"
    readOnly: bool = False
    type: Literal["Device", "Mount", ""] = "Device"
    limit: int = 1
    optional: bool = False

    def __post_init__(self) -> None:
        if not set(self.permissions) <= set("mrw") or len(set(self.permissions)) < len(self.permissions):
            raise ValueError(f"permissions: expected some of m, r and w, found {self.permissions!r}")


@dataclass(frozen=True, slots=True)
class UsbModel:
    """USB devices. Without vendor or product it is none, because these numbers are 0 then."""

    vendor: str = ""
    product: str = ""
    serial: str = ""

    def __post_init__(self) -> None:
        refuse(
            f"{key}: expected at most four hexadecimal digits, found {text!r}"
            for key, text in (("vendor", self.vendor), ("product", self.product))
            if not re.fullmatch("((0x)?[0-9A-Fa-f]{1,4})?", text)
        )


@dataclass(frozen=True, slots=True)
class DevicePaths:
    """A group: the paths, or the USB devices, of one device."""

    paths: tuple[Path, ...] = ()
    usb: tuple[UsbModel, ...] = ()
    usbs: tuple[UsbModel, ...] = ()
    """MicroShift's name for ``usb``."""
    count: int = 1

    def __post_init__(self) -> None:
        if self.paths and self.sticks:
            raise ValueError("expected either paths or usb")

    @property
    def sticks(self) -> tuple[UsbModel, ...]:
        return tuple(one for one in self.usb + self.usbs if one.vendor and one.product)


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
class Domain:
    """The domain of the resource names."""

    name: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GenericFile:
    """The whole configuration."""

    devices: tuple[tuple[Written, GenericDevice, Domain], ...]
    not_kept: tuple[NotKept, ...]


def configured(source: Source) -> GenericFile:
    """The plugin's configuration in ``source``. Raises InvalidConfiguration."""
    flagged, told = list[Written](), dict[object, Domain]()
    everywhere = None
    for words in source.commands():
        pairs = list(flags(words))
        devices: list[Written] = []
        for value in [value for name, value in pairs if name == "device"]:
            try:
                devices += [_digits(one) for one in source.inner(value)]
            except InvalidConfiguration as error:
                devices.append(Written(None, value.place, problems=tuple(error.problems)))
        named = [Domain(str(value.value)) for name, value in pairs if name == "domain"]
        flagged += devices
        told |= {_where(one): named[-1] for one in devices if named}
        everywhere = everywhere or (named[-1] if named else None)
    everywhere = everywhere or _of_environment(source)
    listed = list[Written]()
    for one, domain in _of_files(source):
        listed.append(one)
        if wanted := everywhere or domain:
            told[_where(one)] = wanted
    known = {_where(one) for one in (*flagged, *listed)}
    for one in source.holding("groups"):
        keys = [key for group in items(one.below("groups")) for key in ("paths", "usb", "usbs") if group.below(key)]
        if keys and _where(one) not in known:
            listed.append(_digits(one))
    read = Entries.of(flagged or listed, GenericDevice, source.nothing(_EXPECTED))
    outweighed = [
        NotKept(one.place, text(one.below("name")), "a --device flag outweighs the file") for one in listed if flagged
    ]
    default = everywhere or _default(source)
    found = tuple((one, device, told.get(_where(one), default)) for one, device in read.read)
    return GenericFile(found, (*read.not_kept, *outweighed))


def _of_files(source: Source) -> Iterator[tuple[Written, Domain | None]]:
    """The devices of its files and of MicroShift's, each with the domain that is written there."""
    for config in source.holding("device", "devices"):
        if config.problems and config.value is None:
            yield config, None
        microshift = config.place.key.rpartition(".")[2] == _MICROSHIFT
        warnings = (_DISABLED,) if microshift and text(config.below("status")) == "Disabled" else ()
        name = text(config.below("domain")) or (_MICROSHIFT_DOMAIN if microshift else "")
        for key in ("device", "devices"):
            for one in items(config.below(key)):
                if one.below("groups"):
                    yield (_digits(one) if microshift else one), Domain(name, warnings) if name else None


def _where(one: Written) -> tuple[int, int]:
    return one.place.line, one.place.column


def _of_environment(source: Source) -> Domain | None:
    """The variable DOMAIN, which viper reads, of a container or of a chart's values. Charts may have a value for it."""
    for one in source.everywhere("DOMAIN"):
        env, image = one.part("env"), text(one.below("image")) or text(one.part("image", "repository"))
        if image and _IMAGE not in image:
            continue
        listed = (item.below("value") for item in items(env) if text(item.below("name")) == "DOMAIN")
        found = (*listed, env.below("DOMAIN"), env.part("DOMAIN", "value"), one.below("deviceDomain"))
        if name := next(filter(None, map(text, found)), ""):
            return Domain(name)
    return None


def _default(source: Source) -> Domain:
    """The default domain of the chart, or of the image's version."""
    # Flux, Argo CD, Kustomizations, Helmfile and a helm command name the chart of gabe565 in different ways
    for one in source.everywhere(_CHARTS):
        of_plugin = text(one.below("chart") or one.below("name")) == _IMAGE
        if f"{_CHARTS}/{_IMAGE}" in text(one) or (of_plugin and any(_CHARTS in text(part) for part in one.parts())):
            return Domain(_OLD_DOMAIN)
    if written := _WRITTEN.search(source.text):
        return Domain(written[1])
    for one in source.everywhere("image"):
        pairs = (("repository", "tag"), ("name", "newTag"))  # of charts and of Kustomizations
        found = ((text(one.below(name)), text(one.below(tag))) for name, tag in pairs if one.below(tag))
        split = ":".join(next(found, ()))
        image = text(one.below("image")) or split
        name, _, tag = image.partition("@")[0].rpartition(":")
        if name.endswith(_IMAGE) and (version := re.match(r"v?(\d+)\.(\d+)\.(\d+)", tag)):
            return Domain(_DOMAIN if tuple(map(int, version.groups())) >= _CHANGED else _OLD_DOMAIN)
    return Domain(_DOMAIN, (_UNKNOWN_VERSION,))


def _digits(written: Written) -> Written:
    """Restores USB ids that YAML read as numbers: the plugin accepts unquoted digits in a flag, but not in its file."""
    if isinstance(written.value, list):
        return replace(written, value=[_digits(one) for one in written.value])
    if isinstance(written.value, dict):
        values: dict[str, Written] = {}
        for key, one in written.value.items():
            number = key in {"vendor", "product"} and type(one.value) in {int, float}
            values[key] = replace(one, value=one.text) if number else _digits(one)
        return replace(written, value=values)
    return written
