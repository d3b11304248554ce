"""The configuration: YAML to typed, frozen values; errors name file, line, key, what was found and what was expected.

:func:`load` reads and checks a file or directory; once the drivers it names are found, :func:`complete` types their
options too. ``read`` and ``resolve`` do the same, but return all problems instead of raising them. Drivers' code
runs in :func:`completed` alone.
"""

from dpgateway.config.changes import Changes, changes, fixed, taken_over
from dpgateway.config.completing import (
    Claims,
    Completed,
    Configuration,
    FoundDriver,
    advise,
    complete,
    completed,
    nothing_served,
    resolve,
    unusable,
    warned,
)
from dpgateway.config.document import Document, Entry, File, load, read
from dpgateway.config.files import Files, read_all
from dpgateway.config.kinds import LISTS, name_kind
from dpgateway.config.problems import InvalidConfiguration, Place, Problem, did_you_mean, in_lines, in_order
from dpgateway.config.spelling import format_duration, parse_duration
from dpgateway.config.telling import heard, told
from dpgateway.config.values import (
    DEVICE_PLUGINS_DIR,
    GRANTED_FIELD,
    SHARE_FIELD,
    Kubelet,
    ResourceConfig,
    ResourceKeys,
    Runtime,
    Shares,
    Timeouts,
    Web,
)

__all__ = [
    "DEVICE_PLUGINS_DIR",
    "GRANTED_FIELD",
    "LISTS",
    "SHARE_FIELD",
    "Changes",
    "Claims",
    "Completed",
    "Configuration",
    "Document",
    "Entry",
    "File",
    "Files",
    "FoundDriver",
    "InvalidConfiguration",
    "Kubelet",
    "Place",
    "Problem",
    "ResourceConfig",
    "ResourceKeys",
    "Runtime",
    "Shares",
    "Timeouts",
    "Web",
    "advise",
    "changes",
    "complete",
    "completed",
    "did_you_mean",
    "fixed",
    "format_duration",
    "heard",
    "in_lines",
    "in_order",
    "load",
    "name_kind",
    "nothing_served",
    "parse_duration",
    "read",
    "read_all",
    "resolve",
    "taken_over",
    "told",
    "unusable",
    "warned",
]
