"""The configuration: YAML to typed, frozen values; errors name file, line, key, what was found and what was expected.

:func:`read` reads and checks a file or a directory. What stands under ``options`` is the drivers' own: see
``dpgateway.drivers.options``. No driver's code runs here.

values     what a configuration says, typed
files      reads the files, and refuses those that others can write
parsing    YAML text to plain values, each with its place
syntax     what is told of text that isn't YAML
source     plain values with the places where they were written
strict     plain values to typed ones, with all that is wrong at once
scalars    the types that a configuration can have
spelling   durations, names of resources, addresses
checks     what a value has to be beyond its type
document   from files to a checked Document
problems   what is wrong, where, and what was expected
warnings   what is allowed, but may not do what its author wants
changes    what a new configuration changes while the old one is served
serialise  a configuration as plain values, and back
"""

from dpgateway.config.changes import Changes, changes, fixed, taken_over, watched
from dpgateway.config.checks import GRANTED_FIELD, SHARE_FIELD
from dpgateway.config.document import Document, read
from dpgateway.config.problems import InvalidConfiguration, Place, Problem, did_you_mean, in_lines, in_order
from dpgateway.config.serialise import heard, told
from dpgateway.config.spelling import format_duration
from dpgateway.config.values import (
    DEVICE_PLUGINS_DIR,
    Configuration,
    Kubelet,
    ResourceConfig,
    ResourceKeys,
    Shares,
    Timeouts,
    Web,
)

__all__ = [
    "DEVICE_PLUGINS_DIR",
    "GRANTED_FIELD",
    "SHARE_FIELD",
    "Changes",
    "Configuration",
    "Document",
    "InvalidConfiguration",
    "Kubelet",
    "Place",
    "Problem",
    "ResourceConfig",
    "ResourceKeys",
    "Shares",
    "Timeouts",
    "Web",
    "changes",
    "did_you_mean",
    "fixed",
    "format_duration",
    "heard",
    "in_lines",
    "in_order",
    "read",
    "taken_over",
    "told",
    "watched",
]
