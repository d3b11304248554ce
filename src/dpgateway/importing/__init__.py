"""Configurations of other device plugins, made into ones of dpgateway.

An *importer* knows what one other plugin reads. It is a function from a :class:`Source` to an :class:`Imported`; the
entry points of the group ``dpgateway.importers`` name them. A driver's package has importers for the plugins that the
driver replaces, because only it knows the driver's options.

source     reads the file that has the other plugin's configuration
imported   the resources that an importer makes of it, as a configuration of ours
installed  finds the importers
"""

from dpgateway.config import InvalidConfiguration, Place, Problem
from dpgateway.config.source import Written
from dpgateway.config.strict import typed
from dpgateway.importing.imported import Imported, ImportedResource, NotKept
from dpgateway.importing.installed import Importer, installed
from dpgateway.importing.source import Source, flags

__all__ = [
    "Imported",
    "ImportedResource",
    "Importer",
    "InvalidConfiguration",
    "NotKept",
    "Place",
    "Problem",
    "Source",
    "Written",
    "flags",
    "installed",
    "typed",
]
