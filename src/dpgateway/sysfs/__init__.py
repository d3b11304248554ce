"""Devices by what they are, for drivers: objects of sysfs, tests of them, templates, lasting names, and watching.

A driver takes ``Match`` as the type of one of its options, asks a ``Look`` for the objects of a subsystem, and keeps
those that the match takes. docs/how-to/match-devices.md says what people write. This part knows nothing of the gateway.
"""

from dpgateway.sysfs.attributes import attributes
from dpgateway.sysfs.changes import UNTOLD, Asked, Changes, Trace, places
from dpgateway.sysfs.explaining import Tried, tried
from dpgateway.sysfs.expressions import Expression, ExpressionError, expression
from dpgateway.sysfs.fields import FIELDS
from dpgateway.sysfs.finding import find
from dpgateway.sysfs.identity import LASTING, identity, place
from dpgateway.sysfs.matching import Match, Mismatch
from dpgateway.sysfs.nodes import HOST_DEV, DevTree, Interest, Node, NoNode, WatchedTree
from dpgateway.sysfs.notices import Notices
from dpgateway.sysfs.numa import numa_nodes, numa_of
from dpgateway.sysfs.objects import Look, Object
from dpgateway.sysfs.patterns import is_glob, name_matches, value_matches
from dpgateway.sysfs.templates import Matched, Template, TemplateError, Unfilled
from dpgateway.sysfs.tests import Test
from dpgateway.sysfs.tree import OutsideError
from dpgateway.sysfs.uevents import Uevent, Uevents
from dpgateway.sysfs.values import NoValue, Roots, Value
from dpgateway.sysfs.watching import Watcher

__all__ = [
    "FIELDS",
    "HOST_DEV",
    "LASTING",
    "UNTOLD",
    "Asked",
    "Changes",
    "DevTree",
    "Expression",
    "ExpressionError",
    "Interest",
    "Look",
    "Match",
    "Matched",
    "Mismatch",
    "NoNode",
    "NoValue",
    "Node",
    "Notices",
    "Object",
    "OutsideError",
    "Roots",
    "Template",
    "TemplateError",
    "Test",
    "Trace",
    "Tried",
    "Uevent",
    "Uevents",
    "Unfilled",
    "Value",
    "WatchedTree",
    "Watcher",
    "attributes",
    "expression",
    "find",
    "identity",
    "is_glob",
    "name_matches",
    "numa_nodes",
    "numa_of",
    "place",
    "places",
    "tried",
    "value_matches",
]
