"""The fields of templates, and the value of each. A field has the name of the test of the same value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dpgateway.sysfs.identity import pci_number, virtual_function
from dpgateway.sysfs.objects import Look, Object, wrong_path
from dpgateway.sysfs.patterns import ExpressionError, expression, name_matches
from dpgateway.sysfs.values import NoValue, Value


class Field(NamedTuple):
    """The meaning and the value of a name in braces."""

    means: str
    fill: Callable[[Look, Object, str], Value]
    argument: str = ""
    """Describes the argument after the colon; empty for a field without one."""
    ancestor: bool = False
    """Whether the value is the matched ancestor's, not the object's."""


_MANY = NoValue("stands for several texts, and only one is wanted here")


def _entry(look: Look, thing: Object, path: str) -> Value:
    for found in look.entries(thing, path):
        return found.rpartition("/")[2]
    return NoValue("finds nothing", absent=True)


def _devnode(look: Look, thing: Object) -> Value:
    name = look.env(thing, "DEVNAME")
    if isinstance(name, str):
        return f"/dev/{name.removeprefix('/dev/')}"
    # a USB interface has no node of its own, its device has: the likely mistake, so the error names it
    alike = (one for one in thing.line if look.subsystem(one) == look.subsystem(thing))
    has = next((one.kernel for one in alike if isinstance(look.env(one, "DEVNAME"), str)), None)
    hint = "nodes may have others, and env: {DEVNAME: {present: true}} in match leaves it out"
    if has is not None:
        hint = f"{has}, which it is in, has one: match that, with attr in place of attrs"
    return NoValue(f"isn't there: it has no node; {hint}")


def _pci_number(_: Look, __: Object, address: str) -> Value:
    number = pci_number(address)
    return NoValue(f"isn't there: {address!r} is no PCI address") if number is None else str(number)


def _pci_slot(_: Look, __: Object, address: str) -> Value:
    number = pci_number(address)
    if number is None:
        return NoValue(f"isn't there: {address!r} is no PCI address")
    return f"{number >> 16:04x}:{number >> 8 & 255:02x}:{number >> 3 & 31:02x}"


def _regex(_: Look, __: Object, argument: str) -> Value:
    # the expression is literal, and has no #, so the text may have any
    text, pattern = argument.rsplit("#", 1)
    part = expression(pattern).part(text)
    return NoValue(f"isn't there: {pattern} finds nothing in {text!r}") if part is None else part


def _symlink(look: Look, thing: Object, pattern: str) -> Value:
    for link in look.symlinks(thing):
        if name_matches(link, pattern):
            return link
    return NoValue("isn't there: udev knows no such link", absent=True)


_ATTR = "the path of an attribute"
_FILE = "a file and a key in it, such as /proc/driver/x/{kernel}/information#Minor"
_KEY = "a key, such as PCI_ID"
_ADDRESS = "a PCI address, such as {kernel}"
_PART = "a text, # and a regular expression, such as {kernel}#[a-z]+[0-9]+"
_LINK = "a path below /dev, perhaps with a pattern, such as /dev/serial/by-id/*"
_ENTRY = "a path with a pattern, such as uio/*"

EACH, REGEX = "each", "regex"
FIELDS: Mapping[str, Field] = {
    "kernel": Field("its name", lambda _, it, __: it.kernel),
    "number": Field("the digits at the end of its name", lambda _, it, __: it.number),
    "driver": Field("the kernel's driver that it is bound to", lambda look, it, _: look.value(it, "driver")),
    "devnode": Field("its device node: /dev/ttyUSB0", lambda look, it, _: _devnode(look, it)),
    "major": Field("the major number of its node", lambda look, it, _: look.env(it, "MAJOR")),
    "minor": Field("the minor number of its node", lambda look, it, _: look.env(it, "MINOR")),
    "attr": Field("an attribute; of a link, the name at its end", lambda look, it, path: look.value(it, path), _ATTR),
    "entry": Field("the name of the first thing that a pattern finds", _entry, _ENTRY),
    EACH: Field("in nodes: the name of each thing that a pattern finds, one node for each", lambda *_: _MANY, _ENTRY),
    "file": Field("the value of a key in a text file", lambda look, it, place: look.file(it, place), _FILE),
    "symlink": Field("udev's link to its node that a pattern matches", _symlink, _LINK),
    "vf": Field("which virtual function it is", lambda look, it, _: virtual_function(look, it)),
    "slot": Field("domain, bus and device of a PCI address", _pci_slot, _ADDRESS),
    "pci_number": Field("a PCI address as one number", _pci_number, _ADDRESS),
    REGEX: Field("the part of a text that a regular expression finds: its first group, or all of it", _regex, _PART),
    "env": Field("a property from the kernel or udev", lambda look, it, key: look.env(it, key), _KEY),
    "kernels": Field("the ancestor's name", lambda _, it, __: it.kernel, ancestor=True),
    "drivers": Field("the ancestor's driver", lambda look, it, _: look.value(it, "driver"), ancestor=True),
    "attrs": Field("an attribute of the ancestor", lambda look, it, path: look.value(it, path), _ATTR, ancestor=True),
}


def wrong_argument(name: str, argument: str) -> str | None:
    """The error about a field's argument, without its end (what was found); None if the argument is valid."""
    needed = FIELDS[name].argument if name in FIELDS else ""
    if needed == _PART:  # the argument with its fields, or only the end of it that has none
        _, _, pattern = argument.rpartition("#")
        if "#" not in argument or not pattern:
            return f"expected {_PART}, found"
        try:
            expression(pattern)
        except ExpressionError as error:
            return f"{error} in"
    path = argument.removeprefix("/") if needed == _ENTRY else argument
    if needed in {_ATTR, _ENTRY} and (why := wrong_path(path)):
        return f"{why} in"
    # PATH#KEY, or an absolute path: for an attribute's whole text there is the field `attr`
    path, *keys = argument.split("#")
    if needed == _FILE and not (path and all(keys) and (keys or path.startswith("/"))):
        return f"expected {_FILE}, found"
    return None
