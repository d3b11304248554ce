"""Akri: its Configurations for devices of a node, which are rules of udev.

Source: project-akri/akri, discovery-handlers/udev/src/{udev_rule_grammar.pest,discovery_impl.rs,discovery_handler.rs},
shared/src/akri/configuration.rs, agent/src/plugin_manager/device_plugin_instance_controller.rs; systemd,
src/libsystemd/sd-device/device-enumerator.c, match_property.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dpgateway.importing import (
    Entries,
    Imported,
    ImportedResource,
    NotKept,
    Source,
    Written,
    text,
)
from dpgateway_chardev.importers import DRIVER, MOST_SHARES, RUNNING, TOO_MANY

_FILTER = re.compile(r'\s*([A-Z_]+)\s*(?:\{([^}]*)\})?\s*(==|!=|\+=|-=|:=|=)\s*"([^"]*)"\s*(?:,|$)')
_GLOBS = {"SUBSYSTEM": "subsystem", "KERNEL": "kernel", "ATTR": "attr", "ENV": "env"}
"""The fields that libudev compares with patterns."""
_EXPRESSIONS = {
    "DRIVER": "driver",
    "SUBSYSTEMS": "subsystems",
    "KERNELS": "kernels",
    "DRIVERS": "drivers",
    "ATTRS": "attrs",
}
"""The fields that Akri compares with regular expressions."""
_CHARTS_NAME = "akri-udev"
"""The name in the chart's values, if none is written."""
_NO_PODS = "the gateway starts no pods: write a Deployment or a Job that asks for the resource"
_NO_SERVICE = "it is of Akri's brokers: write a Service for your own pods"
_OF_BROKERS = {
    "brokerSpec": _NO_PODS,
    "brokerPodSpec": _NO_PODS,
    "instanceServiceSpec": _NO_SERVICE,
    "configurationServiceSpec": _NO_SERVICE,
}
_WITH_KEYS = {"attr", "env", "attrs"}
_OF_ANCESTOR = {"subsystems", "kernels", "drivers", "attrs"}
_PLAIN = re.compile(r"[\w:/ -]*")
_WITH_NODES = {"block", "hidraw", "misc", "tty", "usb", "video4linux"}
"""Subsystems whose objects have nodes, or are in USB devices, which have one themselves."""
_PARENTS_NODE = "there the node of the nearest ancestor that has one is theirs: write a match of that ancestor"
_ONE_OF_ENV = "where a rule has ENV several times, one of them is enough for a device, as it is for Akri"
_RECURSIVE = (
    "a device and all devices below it are one there; here that needs rules with ATTRS, KERNELS, DRIVERS or "
    'SUBSYSTEMS, which name the common ancestor: write group: "{kernels}" with them'
)


@dataclass(frozen=True, slots=True)
class UdevDetails:
    """The details of a Configuration for udev."""

    udevRules: tuple[str, ...]
    groupRecursive: bool = False
    permissions: Literal["r", "w", "m", "rw", "rm", "rwm", "wm"] = "rwm"


@dataclass(frozen=True, slots=True)
class AkriConfiguration:
    """A Configuration, as far as it concerns devices of a node."""

    name: str
    details: UdevDetails
    capacity: int = 1
    brokerProperties: Mapping[str, str] = field(default_factory=dict)
    brokerSpec: Mapping[str, Any] = field(default_factory=dict)
    brokerPodSpec: Mapping[str, Any] = field(default_factory=dict)
    instanceServiceSpec: Mapping[str, Any] = field(default_factory=dict)
    configurationServiceSpec: Mapping[str, Any] = field(default_factory=dict)


def akri(source: Source) -> Imported:
    """Converts its Configurations. Raises InvalidConfiguration."""
    found, not_kept = list[Written](), list[NotKept]()
    found += _objects(source, not_kept)
    # the chart's values, and those of the first charts, which had the rules beside the name
    for part in source.holding("discoveryDetails"):
        if isinstance(part.part("discoveryDetails").value, dict):
            found += _of_chart(part, part.part("discoveryDetails"), "udev.configuration")
    for part in source.holding("udevRules"):
        if part.place.key.endswith("udev") and not part.place.key.endswith("protocol.udev"):
            found += _of_chart(part, replace(part, value={"udevRules": part.part("udevRules")}), "udev")
    nothing = source.nothing("an object of the kind Configuration with udevRules")
    if not found and not_kept:
        return Imported((), tuple(not_kept))
    entries = Entries.of(found, AkriConfiguration, nothing)
    not_kept += entries.not_kept
    resources = []
    for written, one in entries.read:
        name = f"akri.sh/{one.name}"
        lost = [NotKept(written.at(key), what, why, name) for key, what, why in _lost(written, one)]
        rules = [_matches(rule) for rule in one.details.udevRules]
        matches = [match for rule in rules for match in rule]
        not_kept += lost
        if matches:
            warnings = (_ONE_OF_ENV,) if any(len(rule) > 1 for rule in rules) else ()
            more: dict[str, Any] = {"shares": min(one.capacity, MOST_SHARES)} if one.capacity > 1 else {}
            more |= {"env": dict(one.brokerProperties)} if one.brokerProperties else {}
            options: dict[str, Any] = {"match": matches[0] if len(matches) == 1 else matches}
            options["permissions"] = one.details.permissions
            if one.details.groupRecursive and all(_OF_ANCESTOR & match.keys() for match in matches):
                options["group"] = "{kernels}"
            elif not one.details.groupRecursive:
                options["id"] = "{env:DEVNAME}"  # Akri's own, a path in sysfs, ends with the kernel's name, too
                options["env"] = {"UDEV_DEVNODE": "{devnode}"}
            resources.append(ImportedResource(name, written.place, DRIVER, options, more, warnings))
    return Imported(tuple(resources), tuple(not_kept))


def _objects(source: Source, not_kept: list[NotKept]) -> Iterator[Written]:
    for one in source.objects("Configuration"):
        spec, name = one.part("spec"), one.part("metadata", "name")
        details = spec.part("discoveryHandler", "discoveryDetails")
        if isinstance(details.value, str):
            parsed = source.inner(details)
            details = parsed[0] if parsed else details
        old = spec.part("protocol", "udev")
        details = old if old.value else details
        handler = text(spec.part("discoveryHandler").below("name"))
        if not text(one.below("apiVersion")).startswith("akri.sh/"):
            continue
        if not details.below("udevRules"):
            why = "it finds devices that no node of the host stands for, and shares them among machines"
            not_kept.append(NotKept(spec.place, f"the discovery handler {handler}", why, f"akri.sh/{text(name)}"))
            continue
        keys = ("capacity", "brokerProperties", *_OF_BROKERS)
        more = {key: value for key in keys if (value := spec.below(key)) is not None}
        yield Written({"name": name, "details": details, **more}, one.place)


def _of_chart(one: Written, details: Written, key: str) -> Iterator[Written]:
    """The Configuration of a part of the values; ``key``: that of the part with the chart's own name."""
    name = one.part("name")
    if not text(name) and one.place.key.endswith(key):
        name = Written(_CHARTS_NAME, one.place)
    if not details.part("udevRules").value or not text(name):
        return
    names = ("capacity", "capacity"), ("brokerProperties", "brokerProperties"), ("properties", "brokerProperties")
    more = {ours: _quoted(value) for theirs, ours in names if (value := one.below(theirs)) is not None}
    for broker in ("brokerPod", "brokerJob"):
        if one.part(broker, "image", "repository").value:
            more["brokerSpec"] = one.part(broker)
    yield Written({"name": name, "details": details, **more}, one.place)


def _quoted(written: Written) -> Written:
    """Properties as the chart writes them: in quotes."""
    if not isinstance(written.value, dict):
        return written
    values = {
        key: replace(one, value=one.text or str(one.value).lower())
        if isinstance(one.value, bool | int | float)
        else one
        for key, one in written.value.items()
    }
    return replace(written, value=values)


def _matches(rule: str) -> list[dict[str, Any]]:
    """Converts a rule to alternatives of match: one per ENV, because libudev demands only one of them. None if match
    can't express the rule. Only objects with a node are devices.
    """
    match: dict[str, Any] = {"subsystem": "*"}
    tests: dict[str, dict[str, Any]] = {}
    properties: list[dict[str, Any]] = []
    for name, key, operation, value in _FILTER.findall(rule):
        # the kernel's name is a path for udev
        test = _test(name, operation, value.removeprefix("/dev/") if key == "DEVNAME" else value)
        field_of = _GLOBS.get(name) or _EXPRESSIONS.get(name)
        if test is None or field_of is None:
            return []
        if name == "ENV":
            properties.append({key: test})
            continue
        group, step = (tests.setdefault(field_of, {}), key) if field_of in _WITH_KEYS else (match, field_of)
        both = _both(group.get(step), test)
        if both is None:
            return []
        group[step] = both
    if _FILTER.sub("", rule).strip() or not rule.strip():
        return []
    return [match | {"env": {"DEVNAME": {"present": True}} | one} | tests for one in properties or [{}]]


def _both(one: Any, other: Any) -> Any:  # noqa: ANN401  tests of match
    """The test that passes if both pass; None if no test expresses that."""
    if one in (None, "*"):
        return other
    tests = [{"glob": test} if isinstance(test, str) else test for test in (one, other)]
    return tests[0] | tests[1] if not tests[0].keys() & tests[1].keys() else None


def _test(name: str, operation: str, value: str) -> Any:  # noqa: ANN401  a test of match, or None
    if operation == "==":
        return value if name in _GLOBS or _PLAIN.fullmatch(value) else {"regex": value}
    # match can't express that no ancestor passes a test
    if operation == "!=" and name in {"ATTR", "KERNEL", "DRIVER"}:
        absent = {"or_absent": True} if name in {"ATTR", "DRIVER"} else {}
        return (
            {"none_of": value, **absent} if (name in _GLOBS and name != "KERNEL") or _PLAIN.fullmatch(value) else None
        )
    return None


def _lost(written: Written, one: AkriConfiguration) -> Iterator[tuple[str, str, str]]:
    """The settings that aren't kept: key, name and reason."""
    matches = [match for rule in one.details.udevRules for match in _matches(rule) or [{}]]
    for rule in one.details.udevRules:
        if not _matches(rule):
            yield "details", f"the rule {rule}", "it has a field or a comparison that match hasn't"
    if one.details.groupRecursive and not all(_OF_ANCESTOR & match.keys() for match in matches):
        yield "details", "groupRecursive", _RECURSIVE
    # a rule with the kernel's name, or with a test of DEVNAME, is about objects that have nodes
    has_node = {"present": True}
    unnamed = [it for it in matches if "kernel" not in it and it.get("env", {}).get("DEVNAME") == has_node]
    if any(match["subsystem"] not in _WITH_NODES for match in unnamed):
        yield "details", "objects without a node", _PARENTS_NODE
    if one.capacity > MOST_SHARES:
        yield "capacity", f"a capacity of {one.capacity}", TOO_MANY
    for key, why in _OF_BROKERS.items():
        if getattr(one, key):
            yield key, key, why
    yield "name", "the ids", f"there they are slots of an instance; {RUNNING}"
    why = "a device has no resource of its own: write one with a narrower match"
    yield "name", f"akri.sh/{one.name}-<hash>", why
    why = "there is no template for a path in sysfs, and the suffixes are hashes that Akri makes"
    yield "name", "UDEV_DEVPATH, and variables with suffixes", why
