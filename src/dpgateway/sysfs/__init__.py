"""Matches devices by their properties in sysfs, for drivers: objects, tests, templates, stable names, and watching.

A driver declares ``Match`` as the type of one of its options, and has a survey turn matched objects into devices.
docs/how-to/match-devices.md documents the configuration. This package knows nothing of the gateway.

values       the roots of the host's trees, and reasons for a missing value
patterns     globs, and regular expressions that never backtrack
changes      dependencies of answers, and the places that events name
tree         path resolution confined to one tree of the host
objects      one look at sysfs
nodes        one look at /dev
identity     bus addresses, serial numbers, NUMA nodes
fields       the fields of templates
templates    texts with fields that an object's values fill
tests        tests of one value
matching     tests of one object and an ancestor
explaining   why an object matches or doesn't; its attributes, for people
selection    the configuration of a survey
naming       names of objects, and of groups, that outlast a look
grouping     objects grouped into devices
found        a device as one look finds it
memory       answers cached from one look to the next
survey       from objects to devices, look by look
uevents      the kernel's netlink socket for uevents
watching     change notification, from inotify and uevents
following    a survey that looks again after each change
"""

from dpgateway.kit.complaint import Complaint
from dpgateway.sysfs.changes import UNTOLD, ChangedPlaces, Interest, Trace
from dpgateway.sysfs.explaining import find
from dpgateway.sysfs.fields import FIELDS
from dpgateway.sysfs.following import FollowedSurvey
from dpgateway.sysfs.found import FoundDevice
from dpgateway.sysfs.grouping import ChangedError, Part, Unoffered
from dpgateway.sysfs.identity import LASTING, identity, numa_nodes, numa_of, place
from dpgateway.sysfs.matching import Match, Mismatch
from dpgateway.sysfs.nodes import ANY_TYPE, HOST_DEV, DevNode, DevTree, NoNode, WatchedTree
from dpgateway.sysfs.objects import Look, Object
from dpgateway.sysfs.patterns import Expression, ExpressionError, expression, is_glob, name_matches
from dpgateway.sysfs.selection import PART, GroupOption, Kind, Parts, Selection
from dpgateway.sysfs.survey import Explained, Maker, Survey
from dpgateway.sysfs.templates import Matched, Template, TemplateError, Unfilled, template
from dpgateway.sysfs.tests import Test
from dpgateway.sysfs.tree import OutsideError
from dpgateway.sysfs.uevents import Uevent
from dpgateway.sysfs.values import NoValue, Roots, Value
from dpgateway.sysfs.watching import Watcher

__all__ = [
    "ANY_TYPE",
    "FIELDS",
    "HOST_DEV",
    "LASTING",
    "PART",
    "UNTOLD",
    "ChangedError",
    "ChangedPlaces",
    "Complaint",
    "DevNode",
    "DevTree",
    "Explained",
    "Expression",
    "ExpressionError",
    "FollowedSurvey",
    "FoundDevice",
    "GroupOption",
    "Interest",
    "Kind",
    "Look",
    "Maker",
    "Match",
    "Matched",
    "Mismatch",
    "NoNode",
    "NoValue",
    "Object",
    "OutsideError",
    "Part",
    "Parts",
    "Roots",
    "Selection",
    "Survey",
    "Template",
    "TemplateError",
    "Test",
    "Trace",
    "Uevent",
    "Unfilled",
    "Unoffered",
    "Value",
    "WatchedTree",
    "Watcher",
    "expression",
    "find",
    "identity",
    "is_glob",
    "name_matches",
    "numa_nodes",
    "numa_of",
    "place",
    "template",
]
