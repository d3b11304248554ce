"""Devices by what they are, for drivers: objects of sysfs, tests of them, templates, lasting names, and watching.

A driver takes ``Match`` as the type of one of its options, and has a survey make devices of the objects that the match
takes. docs/how-to/match-devices.md says what people write. This package knows nothing of the gateway.

values       where the host's trees are seen, and why there is no value
patterns     globs, and regular expressions that never backtrack
changes      on what an answer depended, and what events have named
tree         files of the host, by paths that never lead outside
objects      one look at sysfs
nodes        one look at /dev
identity     where an object is plugged in, and names that last
fields       the fields of templates
templates    texts that are filled with what an object says
tests        what a value has to be
matching     which objects are meant
explaining   why an object is meant, or why not; what it is, for people
selection    what makes devices of objects, as a configuration says it
naming       names of objects, and of groups, that outlast a look
grouping     which objects are one device
found        a device as one look finds it
memory       answers that one look leaves for the next
survey       from objects to devices, look by look
uevents      what the kernel says of changes
watching     says at once that something changed
following    a survey that looks when something has changed
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
from dpgateway.sysfs.nodes import HOST_DEV, DevNode, DevTree, NoNode, WatchedTree
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
