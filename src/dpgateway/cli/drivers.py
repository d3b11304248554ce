"""``dpgateway drivers``: the installed drivers and their options."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import click

from dpgateway.cli.options import completed, logged, output_option
from dpgateway.cli.output import apart, print_json, print_line, print_table
from dpgateway.config import did_you_mean, format_duration
from dpgateway.config.scalars import LISTS, name_kind
from dpgateway.drivers import discovery
from dpgateway.drivers.discovery import Found
from dpgateway.drivers.loading import Loading
from dpgateway.errors import ConfigurationError

UNQUOTED = re.compile(
    r"(?!(?:true|false|null|[0-9._]+(?:e[0-9]+)?|0[xo]\w+)$)[\w/(][\w./()?*+|$^ -]*(?<! )", re.IGNORECASE
)
"""A text that is a text in YAML without quotes, also within brackets."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a driver."""

    name: str
    kind: str
    required: bool
    default: object
    brief: object
    """The default without what nested options have by default themselves."""
    help: str
    per_claim: bool = False
    """Whether a ResourceClaim, or its class, may choose it."""


@click.command()
@click.argument("driver", default="", shell_complete=completed(discovery.installed))
@logged
@output_option
@click.pass_context
def drivers(context: click.Context, driver: str, output: str) -> None:
    """List the installed drivers, or DRIVER alone, and their options.

    Drivers are Python packages with an entry point in the group "dpgateway". Those that can't be used are listed with
    the reason, and the exit code is then 1.
    """
    if driver and driver not in (known := discovery.installed()):
        expected, hint = ", ".join(known) or "none", did_you_mean(driver, known)
        raise ConfigurationError(f"DRIVER: found {driver!r}, expected {expected}{hint and '; '}{hint}")
    with apart():
        loading = Loading(discovery.named([driver] if driver else None))
        loading.wait()
        found = loading.found()
    if output == "json":
        print_json([_as_json(one) for one in found.values()])
    else:
        _print(found)
    context.exit(1 if any(one.failure is not None for one in found.values()) else 0)


def describe_options(kind: Any, prefix: str = "", told: set[Any] | None = None) -> Iterator[Option]:  # noqa: ANN401
    """The options of a driver's dataclass ``Options``; nested options are named ``outer.inner``.

    A dataclass used by several options is listed only for the first: ``told`` contains the dataclasses listed so far.
    """
    told = set() if told is None else told
    kinds = get_type_hints(kind)
    for field in fields(kind):
        if not field.init:
            continue
        name = prefix + field.name
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        required = default is MISSING
        whole, brief = (None, None) if required else (plain(default), plain(default, brief=True))
        text = str(field.metadata.get("help", ""))
        claimed = not prefix and field.metadata.get("per_claim") is True
        yield Option(name, name_kind(kinds[field.name]), required, whole, brief, text, claimed)

        # The dataclasses within the option's type; a name with ``[]`` is that of a list's items.
        outer = kinds[field.name]
        of_items = "[]" if get_origin(outer) in LISTS else ""
        for inner, mark in ((outer, ""), *((one, of_items) for one in get_args(outer))):
            if is_dataclass(inner) and inner not in told:
                told.add(inner)
                yield from describe_options(inner, f"{name}{mark}.", told)


def plain(value: Any, *, brief: bool = False) -> Any:  # noqa: ANN401
    """``value`` in plain types, as in the configuration or in JSON. ``brief``: as short as it can be written; of a
    dataclass only the fields that differ from their defaults, if any do.
    """
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, brief=brief) for key, item in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [plain(item, brief=brief) for item in value]
    if is_dataclass(value):
        found = {field.name: getattr(value, field.name) for field in fields(value)}
        usual = {
            field.name: field.default if field.default_factory is MISSING else field.default_factory()
            for field in fields(value)
        }
        chosen = {name: item for name, item in found.items() if brief and item != usual[name]}
        shown = {name: plain(item, brief=brief) for name, item in (chosen or found).items()}
        for field in fields(value):
            if field.metadata.get("single") and field.name in chosen and len(shown[field.name]) == 1:
                (shown[field.name],) = shown[field.name]
        short: str = getattr(value, "short_form", "")
        return shown[short] if [*chosen] == [short] and not isinstance(shown[short], dict) else shown
    return value if isinstance(value, str | int | float | None) else str(value)  # an option of any type may have any


def _written(value: object, *, inner: bool = False) -> str:
    """A plain value in YAML's flow style. ``inner``: of a list or mapping, where a text may need quotes."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(item, inner=True)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_written(item, inner=True) for item in value) + "]"
    if inner and isinstance(value, str) and not UNQUOTED.fullmatch(value):
        return json.dumps(value, ensure_ascii=False)
    return str(value) or '""'


def _as_json(found: Found) -> dict[str, object]:
    options = describe_options(found.driver.Options) if found.driver is not None else ()
    return {
        "name": found.name,
        "distribution": found.distribution,
        "version": found.version,
        "failure": found.failure,
        "options": [
            {
                "name": one.name,
                "type": one.kind,
                "required": one.required,
                "default": one.default,
                "help": one.help,
                "per_claim": one.per_claim,
            }
            for one in options
        ],
    }


def _print(found: Mapping[str, Found]) -> None:
    if not found:
        print_line("no driver is installed; install one with pip, as dpgateway-chardev")
    for index, one in enumerate(found.values()):
        if index:
            print_line("")
        print_line(f"{one.name}  ({one.distribution} {one.version})", "green" if one.failure is None else "red")
        if one.failure is not None:
            print_line(f"can't be used: {one.failure}")
            continue
        options = list(describe_options(one.driver.Options))
        if options:
            rows = []
            for option in options:
                default = "required" if option.required else _written(option.brief)
                meaning = f"{option.help} (per claim)" if option.per_claim else option.help
                rows.append((option.name, option.kind, default, meaning))
            print_table(("option", "type", "default", "meaning"), rows, spare=("default", "type"))
        else:
            print_line("no options")
