"""The configuration: YAML to typed, frozen values; errors name file, line, key, what was found and what was expected.

:func:`load` reads and checks a file or directory; once the drivers it names are found, :func:`complete` types their
options too. ``read`` and ``resolve`` do the same, but return all problems instead of raising them.
"""

from dpgateway.config.advice import advise, nothing_served
from dpgateway.config.completing import Configuration, complete, resolve, resolve_options
from dpgateway.config.durations import format_duration, parse_duration
from dpgateway.config.kinds import LISTS, name_kind
from dpgateway.config.loading import Document, Entry, File, load, read
from dpgateway.config.problems import InvalidConfiguration, Place, Problem, did_you_mean, in_order
from dpgateway.config.values import (
    DEVICE_PLUGINS_DIR,
    Kubelet,
    Resource,
    ResourceConfig,
    Shares,
    Timeouts,
)

__all__ = [
    "DEVICE_PLUGINS_DIR",
    "LISTS",
    "Configuration",
    "Document",
    "Entry",
    "File",
    "InvalidConfiguration",
    "Kubelet",
    "Place",
    "Problem",
    "Resource",
    "ResourceConfig",
    "Shares",
    "Timeouts",
    "advise",
    "complete",
    "did_you_mean",
    "format_duration",
    "in_order",
    "load",
    "name_kind",
    "nothing_served",
    "parse_duration",
    "read",
    "resolve",
    "resolve_options",
]
