"""Converts the configurations of other device plugins.

An *importer* converts the configuration of one other plugin. It is a function from a :class:`Source` to an
:class:`Imported`, named by an entry point of the group ``dpgateway.importers``. A driver's package contains the
importers for the plugins that the driver replaces, because it knows the driver's options.

commands   reads command lines
prose      finds blocks of code
files      reads a file or a pipe
documents  finds the YAML in its text
source     finds the other plugin's configuration in it
entries    reads its entries, as the other plugin does
variables  what isn't known until Flux or envsubst has run
imported   the resulting resources, as a configuration of ours
nodes      for which nodes they are
installed  finds the importers
"""

from dpgateway.config import InvalidConfiguration, Place, Problem
from dpgateway.config.source import Written
from dpgateway.importing.commands import flags
from dpgateway.importing.entries import Entries, refused
from dpgateway.importing.imported import Imported, ImportedResource, NotKept
from dpgateway.importing.installed import Importer, installed
from dpgateway.importing.nodes import HOST, for_nodes, needed
from dpgateway.importing.source import Source, in_any_case, items, text
from dpgateway.importing.variables import explained, without_variables

__all__ = [
    "HOST",
    "Entries",
    "Imported",
    "ImportedResource",
    "Importer",
    "InvalidConfiguration",
    "NotKept",
    "Place",
    "Problem",
    "Source",
    "Written",
    "explained",
    "flags",
    "for_nodes",
    "in_any_case",
    "installed",
    "items",
    "needed",
    "refused",
    "text",
    "without_variables",
]
