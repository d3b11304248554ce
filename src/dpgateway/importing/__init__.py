"""Configurations of other device plugins, made into ones of dpgateway.

An *importer* knows what one other plugin reads. It is a function from a :class:`Source` to an :class:`Imported`; the
entry points of the group ``dpgateway.importers`` name them. A driver's package has importers for the plugins that the
driver replaces, because only it knows the driver's options.
"""

from dpgateway.config import InvalidConfiguration, Place, Problem
from dpgateway.config.source import Written
from dpgateway.config.strict import typed
from dpgateway.importing.imported import Imported, Lost, Resource
from dpgateway.importing.installed import Importer, installed
from dpgateway.importing.source import Source, flags

__all__ = [
    "Imported",
    "Importer",
    "InvalidConfiguration",
    "Lost",
    "Place",
    "Problem",
    "Resource",
    "Source",
    "Written",
    "flags",
    "installed",
    "typed",
]
