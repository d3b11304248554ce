"""Options shared by several commands, and the resulting settings."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dpgateway.kit import log

if TYPE_CHECKING:
    from dpgateway.config import Configuration

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_CONFIG = Path("/etc/dpgateway/config.yaml")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings from the command line, the environment and the node itself."""

    config: Path
    node_name: str
    flag_device_plugins_dir: Path | None
    log_format: log.Format
    log_level: str

    def device_plugins_dir(self, configuration: Configuration) -> Path:
        """The option's value, else the configuration's, which has a default."""
        return self.flag_device_plugins_dir or configuration.kubelet.device_plugins_dir


class GivenPath(click.Path):
    """A path that isn't empty. An empty one, as of an unset shell variable, would mean the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401  click's own
        if not value:
            self.fail("expected a path, found an empty string", param, ctx)
        try:
            os.fsencode(value)
        except UnicodeEncodeError:
            self.fail(f"expected a path, found {value!a}, which no file can have as its name", param, ctx)
        return super().convert(value, param, ctx)


def _option(flag: str, *more_variables: str, **keys: Any) -> Callable[[Command], Command]:  # noqa: ANN401  click's own
    variable = "DPGATEWAY_" + flag.removeprefix("--").replace("-", "_").upper()
    return click.option(flag, envvar=[variable, *more_variables], show_envvar=True, **keys)


_LOG_LEVEL = _option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    show_default=True,
    help="The least important messages to log.",
)
_LOG_FORMAT = _option(
    "--log-format",
    type=click.Choice(["auto", "text", "json"], case_sensitive=False),
    default="auto",
    show_default=True,
    help="The format of the log on standard error; auto: text, but JSON lines of `run` where that is no terminal.",
)
CONFIG = _option(
    "--config",
    type=GivenPath(path_type=Path, readable=False),  # reported like any other problem of the configuration
    default=DEFAULT_CONFIG,
    show_default=True,
    help="The configuration: a YAML file, or a directory whose *.yaml files are read as one configuration.",
)
DEVICE_PLUGINS_DIR = _option(
    "--device-plugins-dir",
    type=GivenPath(path_type=Path, readable=False),
    help="The kubelet's device-plugins directory.  [default: the configuration's kubelet.device_plugins_dir, "
    "else /var/lib/kubelet/device-plugins]",
)
_NODE_NAME = _option("--node-name", "NODE_NAME", help="This node's name.  [default: the host name]")

CONTROL_SOCKET = _option(
    "--control-socket",
    type=GivenPath(path_type=Path, readable=False),
    default=Path("/run/dpgateway/control.sock"),
    show_default=True,
    help="The socket on which the running gateway answers with its status.",
)


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str) -> float:
    """Parses a duration, spelt as in the configuration, to seconds."""
    from dpgateway.config.problems import Wrong  # noqa: PLC0415  `status` needs neither it nor its memory
    from dpgateway.config.spelling import parse_duration  # noqa: PLC0415

    try:
        return parse_duration("0s" if value == "0" else value).total_seconds()
    except Wrong as wrong:
        expected, hint = wrong.expected, wrong.hint
        raise click.BadParameter(f"expected {expected}, found {wrong.found}{hint and '; '}{hint}") from None


LINGER = _option(
    "--linger",
    callback=_seconds,
    metavar="DURATION",
    default="0s",
    show_default=True,
    help="How long a gateway that is told to end serves on, until another gateway has taken over; 0s: it ends at once.",
)

POD_UID = _option(
    "--pod-uid",
    "POD_UID",
    default="",
    help="The uid of the gateway's own pod, if it has one. `run` lingers only while another gateway's is on the node; "
    "`preflight` looks for it in the kubelet's directory of pods.",
)

STRICT_CONFIG = _option(
    "--strict-config",
    is_flag=True,
    help="End with exit code 2 if the configuration is refused, instead of serving the last good one.",
)

_OUTPUT = _option(
    "--output",
    type=click.Choice(["table", "json"], case_sensitive=False),
    default="table",
    show_default=True,
    help="The format of the result.",
)


def completed(names: Callable[[], Iterable[str]]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Shell completion for an argument that is one of ``names``."""
    return lambda _context, _argument, begun: [name for name in names() if name.startswith(begun)]


def output_option(command: Command) -> Command:
    """Adds ``--output`` to a command, and keeps the log out of a piped result."""

    @functools.wraps(command)
    def wrapped(*arguments: Any, **keys: Any) -> Any:  # noqa: ANN401
        with _log_after_result():
            return command(*arguments, **keys)

    return _OUTPUT(wrapped)  # type: ignore[return-value]


@contextlib.contextmanager
def _log_after_result() -> Iterator[None]:
    """Shows the log at once on a terminal, but after a piped result: standard error may be the same pipe."""
    given = click.get_current_context().params
    log_format: log.Format = "text" if given["log_format"] == "auto" else given["log_format"]
    if sys.stdout.isatty():
        log.setup(log_format, given["log_level"])
        yield
        return
    held = io.StringIO()
    log.setup(log_format, given["log_level"], held)
    try:
        yield
    finally:
        log.setup(log_format, given["log_level"])
        click.echo(held.getvalue(), nl=False, err=True)


def logged(command: Command) -> Command:
    """Adds the log's options to a command, and configures the log."""

    @functools.wraps(command)
    def wrapped(*arguments: Any, log_level: str, log_format: log.Format, **keys: Any) -> Any:  # noqa: ANN401
        log.setup(log_format, log_level)
        return command(*arguments, **keys)

    return _LOG_LEVEL(_LOG_FORMAT(wrapped))  # type: ignore[return-value]


def configured(command: Command) -> Command:
    """Adds the options of a command that reads the configuration, and passes them as its argument ``settings``."""

    @functools.wraps(command)
    def wrapped(
        config: Path,
        device_plugins_dir: Path | None,
        node_name: str | None,
        log_level: str,
        log_format: log.Format,
        **keys: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        log.setup(log_format, log_level)
        directory = device_plugins_dir and device_plugins_dir.absolute()  # a driver may change the working directory
        name = node_name or platform.node().lower()  # as a kubelet names its node
        settings = Settings(config, name, directory, log_format, log_level)
        return command(settings, **keys)

    options = (_LOG_FORMAT, _LOG_LEVEL, _NODE_NAME, DEVICE_PLUGINS_DIR, CONFIG)
    return functools.reduce(lambda inner, option: option(inner), options, wrapped)  # type: ignore[return-value]
