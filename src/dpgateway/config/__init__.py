"""The configuration: from YAML to typed, frozen values. Errors name file, line, key, finding and expectation.

:func:`read` reads and checks a file or a directory. The keys under ``options`` belong to the drivers: see
``dpgateway.drivers.options``. No driver code runs here.

values    the typed configuration: a dataclass per mapping of the file
problems  errors: the place, the finding, the expectation
files     reads the files, and refuses those that other users can write
parsing   parses YAML into plain values, each with its place
syntax    explains YAML syntax errors
source    plain values, each with its place
strict    converts plain values to dataclasses, and collects all errors
scalars   the types of a configuration's values
spelling  parses durations, resource names and addresses
checks    validates typed values
document  merges files into a checked Document; and a configuration's JSON
warnings  valid configurations that may not do what their author wants
changes   the diff of two configurations
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpgateway.config.changes import IN_PLACE, Changes, reload_keys, restart_keys
    from dpgateway.config.checks import GRANTED_FIELD, SHARE_FIELD
    from dpgateway.config.document import Document, from_json, read, to_json
    from dpgateway.config.problems import InvalidConfiguration, Place, Problem, did_you_mean, in_lines, in_order
    from dpgateway.config.spelling import format_duration
    from dpgateway.config.values import (
        DEVICE_PLUGINS_DIR,
        ClusterSettings,
        Configuration,
        DraSettings,
        KubeletSettings,
        ResourceConfig,
        ResourceKeys,
        Shares,
        Timeouts,
        WebSettings,
    )

__all__ = [
    "DEVICE_PLUGINS_DIR",
    "GRANTED_FIELD",
    "IN_PLACE",
    "SHARE_FIELD",
    "Changes",
    "ClusterSettings",
    "Configuration",
    "Document",
    "DraSettings",
    "InvalidConfiguration",
    "KubeletSettings",
    "Place",
    "Problem",
    "ResourceConfig",
    "ResourceKeys",
    "Shares",
    "Timeouts",
    "WebSettings",
    "did_you_mean",
    "format_duration",
    "from_json",
    "in_lines",
    "in_order",
    "read",
    "reload_keys",
    "restart_keys",
    "to_json",
]

_PLACES = {
    "changes": {"IN_PLACE", "Changes", "reload_keys", "restart_keys"},
    "checks": {"GRANTED_FIELD", "SHARE_FIELD"},
    "document": {"Document", "from_json", "read", "to_json"},
    "problems": {"InvalidConfiguration", "Place", "Problem", "did_you_mean", "in_lines", "in_order"},
    "spelling": {"format_duration"},
}
"""The modules of these names; that of the others is `values`."""


def __getattr__(name: str) -> object:
    """A name, imported at its first use: the process that reads a gateway's files needs none of the typed values."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((place for place, names in _PLACES.items() if name in names), "values")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value
