"""From the configuration to the running gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpgateway.cli.options import Settings
from dpgateway.config import Configuration, InvalidConfiguration, Place, Problem, did_you_mean, in_lines, read
from dpgateway.config.warnings import advise
from dpgateway.daemon import main as process
from dpgateway.daemon.config_reader import ConfigReader
from dpgateway.daemon.ending import Patience
from dpgateway.daemon.files import FileWatch
from dpgateway.daemon.reloading import Reloading
from dpgateway.deviceplugin.server.sockets import too_deep
from dpgateway.drivers import discovery
from dpgateway.drivers.loading import PATIENCE, Loading
from dpgateway.drivers.options import preferring
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


def serve(settings: Settings, options: RunOptions, reader: ConfigReader, files: FileWatch) -> int:
    """Serves until the end; returns the exit code. ``reader`` is reading the configuration; ``files`` looked at its
    files before that, so that no later change is missed.
    """
    try:
        configuration = _configuration(settings, reader)
    except InvalidConfiguration as error:
        for line in in_lines(error.problems):
            _log.error("%s", line)
        return 2

    # Conditions under which nothing could be served end the process at once.
    directory = configuration.kubelet.device_plugins_dir
    if unfit := misplaced(directory) or forbidden(directory):
        _log.error("%s", unfit)
        return 2
    if few := too_few(len(configuration.resources)):
        _log.error("%s", few)
        return 1
    if doubtful := too_deep(directory):
        _log.warning("%s", doubtful)
    absolute = replace(settings, config=settings.config.absolute())  # a driver may change the working directory
    reloading = Reloading(configuration, lambda: _again(absolute))
    patience = Patience(options.linger, options.pod_uid)
    process.run(settings.node_name, reloading, files, options.control_socket, patience)
    return 0


def _again(settings: Settings) -> Configuration:
    """Reads the configuration for a reload. Raises InvalidConfiguration."""
    configuration = _configuration(settings, ConfigReader(settings.config))
    if few := too_few(len(configuration.resources)):
        raise InvalidConfiguration([Problem(Place(str(settings.config)), hint=few)])
    return configuration


def _configuration(settings: Settings, reader: ConfigReader) -> Configuration:
    seen = reader.result()
    document, wrong = read(settings.config, seen.files)
    document = document.for_node(settings.node_name)
    installed = seen.installed.names
    missing = {name: _missing(name, installed) for name in document.drivers if name not in installed}
    loading = Loading(discovery.named(document.drivers, seen.installed), document)
    loading.wait(PATIENCE)
    configuration = loading.complete(installed, missing, wrong)
    for warning in advise(document, preferring(loading.found())):
        _log.warning("%s", warning)
    kubelet = replace(configuration.kubelet, device_plugins_dir=settings.device_plugins_dir(configuration))
    return replace(configuration, kubelet=kubelet)


def _missing(name: str, installed: Sequence[str]) -> discovery.Found:
    """A missing driver, which fails only its resources here; `check` is strict."""
    hint = did_you_mean(name, installed)
    failure = f"it isn't installed; installed drivers: {', '.join(installed) or 'none'}{hint and '; '}{hint}"
    return discovery.Found(name, "", "", failure=failure)
