"""From the configuration to the running gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpgateway.cli.options import Settings
from dpgateway.config import (
    Configuration,
    Document,
    InvalidConfiguration,
    Place,
    Problem,
    did_you_mean,
    in_lines,
    read,
)
from dpgateway.config.warnings import advise
from dpgateway.daemon import main as process
from dpgateway.daemon.config_child import ConfigInputs
from dpgateway.daemon.config_reader import ConfigReader
from dpgateway.daemon.ending import Ending, Patience
from dpgateway.daemon.files import FileWatch
from dpgateway.daemon.last_good import Keeping, LastGoodFile
from dpgateway.daemon.reloading import Fallback, Reloading
from dpgateway.deviceplugin.server.sockets import too_deep
from dpgateway.drivers import discovery
from dpgateway.drivers.loading import PATIENCE, Loading
from dpgateway.drivers.options import preferring
from dpgateway.errors import describe
from dpgateway.kit import log
from dpgateway.kit.limits import too_few
from dpgateway.node.directory import forbidden, misplaced

_log = log.bind(__name__)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of ``run`` alone."""

    control_socket: Path
    linger: float
    """Seconds, at most, for which a gateway serves on after SIGTERM until another one has taken over."""
    pod_uid: str
    """The uid of the gateway's own pod; empty without a pod, or if unknown."""
    strict_config: bool
    """Whether a refused configuration ends it, though a last good one is kept."""


def serve(settings: Settings, options: RunOptions, reader: ConfigReader, files: FileWatch) -> int:
    """Serves until the end; returns the exit code. ``reader`` is reading the configuration; ``files`` looked at its
    files before that, so that no later change is missed.
    """
    settings = replace(settings, config=settings.config.absolute())  # a driver may change the working directory
    try:
        inputs = reader.result()
    except InvalidConfiguration as error:
        _log.error("%s", error)
        return 1  # a disk hangs, which the next start may not meet: systemd makes none after 2
    document, wrong = read(settings.config, inputs.files)
    kept = LastGoodFile(document.state_dir, settings.config, settings.node_name)
    configuration, problems, code = _tried(lambda: _configuration(settings, inputs, document, wrong))
    for line in problems:
        _log.error("%s", line)
    fallback = None
    if not options.strict_config:
        configuration, fallback = _with_last_good(settings, kept, inputs, configuration, problems)
    if configuration is None:
        return code
    if doubtful := too_deep(configuration.kubelet.device_plugins_dir):
        _log.warning("%s", doubtful)
    reloading = Reloading(configuration, lambda: _reread(settings), fallback)
    patience = Patience(options.linger, options.pod_uid)
    keeping = Keeping(LastGoodFile(configuration.state_dir, settings.config, settings.node_name))
    control = options.control_socket
    process.run(process.Daemon(settings.node_name, reloading, Ending(), patience, files, control, keeping))
    return 0


def _tried(reading: Callable[[], Configuration]) -> tuple[Configuration | None, tuple[str, ...], int]:
    """The configuration; or None, the reasons why it can't be served here, and the exit code for them."""
    try:
        configuration = reading()
    except InvalidConfiguration as error:
        return None, tuple(in_lines(error.problems)), 2
    directory = configuration.kubelet.device_plugins_dir
    if why := misplaced(directory) or forbidden(directory):
        return None, (why,), 2
    if few := too_few(len(configuration.resources)):
        return None, (few,), 1
    return configuration, (), 0


def _with_last_good(
    settings: Settings,
    kept: LastGoodFile,
    inputs: ConfigInputs,
    wanted: Configuration | None,
    problems: Sequence[str],
) -> tuple[Configuration | None, Fallback | None]:
    """The configuration to start with. The last good one stands in for a refused one as a whole (``wanted`` is None,
    because of ``problems``), and for each resource whose driver can't be used, as in a reload.
    """
    failed = {one.name: one for one in wanted.resources if one.failure and one.load is None} if wanted else {}
    if wanted is not None and not failed:
        return wanted, None
    try:
        last = kept.load()
    except (InvalidConfiguration, OSError) as error:
        _log.error("the last good configuration can't be used: %s", describe(error))
        return wanted, None
    if last is None:
        return wanted, None
    names = failed or {entry.name for entry in last.document.entries}
    document = replace(last.document, entries=tuple(entry for entry in last.document.entries if entry.name in names))
    good, reasons, _ = _tried(lambda: _usable(settings, inputs, document))
    if good is None:
        _log.error("the last good configuration, %s, can't be used: %s", kept.path, "; ".join(reasons))
        return wanted, None
    if wanted is None:
        text = "the configuration is refused, so the last good one, kept at %s in %s, is served"
        _log.error(text, last.time, kept.path)
        return good, Fallback(tuple(problems), last.time, whole=True)

    # One that was offered by DRA can't be without the driver of DRA, which the new configuration may not have.
    dra = wanted.dra.driver is not None
    usable = [one for one in good.resources if (not one.failure or one.load) and not (one.on_dra and not dra)]
    before = {one.name: one for one in usable}
    text = "resource %s goes on as before, because its new configuration can't be used: %s"
    told = [text % (name, failed[name].failure) for name in failed if name in before]
    for line in told:
        _log.error("%s", line)
    mixed = replace(wanted, resources=tuple(before.get(one.name, one) for one in wanted.resources))
    return mixed, Fallback(tuple(told), last.time, whole=False) if told else None


def _reread(settings: Settings) -> Configuration:
    """Reads the configuration for a reload. Raises InvalidConfiguration."""
    inputs = ConfigReader(settings.config).result()
    configuration = _configuration(settings, inputs, *read(settings.config, inputs.files))
    if few := too_few(len(configuration.resources)):
        raise InvalidConfiguration([Problem(Place(str(settings.config)), hint=few)])
    return configuration


def _configuration(
    settings: Settings, inputs: ConfigInputs, document: Document, wrong: Sequence[Problem]
) -> Configuration:
    """The document with its drivers. ``wrong``: its problems. Raises InvalidConfiguration."""
    loading, missing = _loading(settings, inputs, document)
    configuration = loading.complete(inputs.installed.names, missing, wrong)
    for warning in advise(document.for_node(settings.node_name), preferring(loading.found())):
        _log.warning("%s", warning)
    return _placed(settings, configuration)


def _usable(settings: Settings, inputs: ConfigInputs, document: Document) -> Configuration:
    """The document with its drivers; one that can't be used any more, or refuses its options, fails its resource."""
    loading, missing = _loading(settings, inputs, document)
    return _placed(settings, loading.usable(missing))


def _loading(
    settings: Settings, inputs: ConfigInputs, document: Document
) -> tuple[Loading, Mapping[str, discovery.Found]]:
    """The loaded drivers of the node's resources, as far as they load in time, and the missing ones."""
    document = document.for_node(settings.node_name)
    installed = inputs.installed.names
    missing = {}
    for name in document.drivers.difference(installed):  # it fails only its resources here; `check` is strict
        hint = did_you_mean(name, installed)
        failure = f"it isn't installed; installed drivers: {', '.join(installed) or 'none'}{hint and '; '}{hint}"
        missing[name] = discovery.Found(name, "", "", failure=failure)
    loading = Loading(discovery.named(document.drivers, inputs.installed), document)
    loading.wait(PATIENCE)
    return loading, missing


def _placed(settings: Settings, configuration: Configuration) -> Configuration:
    kubelet = replace(configuration.kubelet, device_plugins_dir=settings.device_plugins_dir(configuration))
    return replace(configuration, kubelet=kubelet)
