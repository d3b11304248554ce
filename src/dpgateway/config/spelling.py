"""Parses strings with a syntax of their own: durations, extended resource names, listen addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address

from dpgateway.config.problems import Wrong, shown

DURATION = "a duration: a number and a unit (ms, s, m or h), like 30s or 1m30s"
RESOURCE_NAME = "an extended resource name like example.com/serial"
LISTEN = "an IP address and a port, like 127.0.0.1:9480 or [::1]:9480"
LONGEST_DOMAIN = 253 - len("requests.")
"""Characters."""
LONGEST_THING = 63
"""Characters."""

_UNITS = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000}  # in µs, largest first
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>{_NUMBER}){unit}(?![a-z]))?" for unit in _UNITS))
_WORD = re.compile(r"(milliseconds?|msecs?)|(seconds?|secs?)|(minutes?|mins?)|(hours?|hrs?)")
_UNIT_OF_WORD = ("", "ms", "s", "m", "h")  # by the group that matched

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
"""A DNS subdomain: lower-case labels between dots."""
_THING = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")

_LISTEN = re.compile(r"(?:\[(.+)\]|([0-9.]+)):([0-9]{1,5})", re.ASCII)


def parse_duration(value: object) -> timedelta:
    """Parses ``1m30s``: units from large to small, each at most once. Raises Wrong."""
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if not value or match is None:
        raise Wrong(shown(value), DURATION, _what_to_write(value))
    microseconds = 0
    for unit, number in match.groupdict().items():
        # Rounded down, in integers: 0.1 isn't a tenth in floating point.
        whole, _, fraction = (number or "0").partition(".")
        microseconds += int(f"{whole}{fraction:0<6}") * _UNITS[unit] // 1_000_000
    try:
        return timedelta(microseconds=microseconds)
    except OverflowError:
        raise Wrong(shown(value), DURATION, "that is longer than any clock can count") from None


def _what_to_write(value: object) -> str:
    """A hint: ``value`` spelt as a duration."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return ""
    text = str(value)
    if text.startswith("-"):
        return "a duration can't be negative"
    compact = re.sub(r"\s+", "", text).lower()
    compact = _WORD.sub(lambda word: _UNIT_OF_WORD[word.lastindex or 0], compact)
    if re.fullmatch(_NUMBER, compact):
        return f"write {compact}s"
    if compact and _DURATION.fullmatch(compact):
        return f"write {compact}"
    return "a day is 24h" if re.search(r"[0-9]d", text) else ""


def format_duration(duration: timedelta) -> str:
    """The shortest spelling that :func:`parse_duration` reads back, to the millisecond: ``1m30s``."""
    milliseconds = duration // timedelta(milliseconds=1)
    text = ""
    for unit, microseconds in _UNITS.items():
        number, milliseconds = divmod(milliseconds, microseconds // 1_000)
        text += f"{number}{unit}" if number else ""
    return text or "0s"


def check_resource_name(name: str) -> str:
    """Raises Wrong if a kubelet since 1.10 refuses the name, which it would do only at Register.

    Source: v1helper.IsExtendedResourceName (kubernetes pkg/apis/core/v1/helper/helpers.go), which asks
    validation.IsQualifiedName about ``requests.`` and the name.
    """
    fault = next(_faults(name), None)
    if fault is not None:
        raise Wrong(shown(name), RESOURCE_NAME, fault)
    return name


def _faults(name: str) -> Iterator[str]:
    # Only the first fault is reported, so the likeliest mistakes come first.
    domain, _, thing = name.partition("/")
    if name.count("/") != 1:
        yield "it has exactly one '/', between your domain and the name of the thing"
    if "kubernetes.io/" in name:
        yield "kubernetes.io/ belongs to Kubernetes itself; use a domain of your own"
    if name.startswith("requests."):
        yield "the kubelet refuses names that start with 'requests.'"
    if len(domain) > LONGEST_DOMAIN:
        yield f"the part before '/' has {len(domain)} characters, at most {LONGEST_DOMAIN} are allowed"
    if not DOMAIN.fullmatch(domain.lower()):
        rule = "lower-case letters, digits, '-' and '.', no '-' or '.' at a label's ends"
        yield f"the part before '/' is a domain: {rule}"
    if not DOMAIN.fullmatch(domain):
        yield f"the part before '/' must be lower case: {domain.lower()}"
    if not 1 <= len(thing) <= LONGEST_THING:
        yield f"the part after '/' has {len(thing)} characters, 1 to {LONGEST_THING} are allowed"
    if not _THING.fullmatch(thing):
        yield "the part after '/' has letters, digits, '-', '_' and '.', and begins and ends with a letter or digit"


def parse_listen(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    """Parses an address and a port; port 0 is any free one. Raises Wrong."""
    match = _LISTEN.fullmatch(text)
    if match is not None and int(match[3]) < 65536:
        with suppress(ValueError):
            return IPv6Address(match[1]) if match[1] else IPv4Address(match[2]), int(match[3])
    host, _, port = text.rpartition(":")
    local = host in {"", "localhost"} and port.isdecimal()
    raise Wrong(shown(text), LISTEN, f"write 127.0.0.1:{port}" if local else "")
