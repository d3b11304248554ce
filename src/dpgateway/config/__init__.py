"""The configuration: YAML to typed, frozen values; errors name file, line, key, what was found and what was expected.

:func:`read` reads and checks a file or a directory. What stands under ``options`` is the drivers' own: see
``dpgateway.drivers.options``. No driver's code runs here. What is named here is what several parts of the gateway need.
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
