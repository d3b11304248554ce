"""Everything there is to know of the gateway now, as one frozen value. It is made when somebody asks.

values     the value itself, and its JSON
overview   whom all ask
looking    makes it, from the parts of the gateway
counting   the same in numbers, without the devices
readiness  whether the kubelet has what it needs, which follows from it
troubles   what is wrong, and what to do about it
report     what systemd is told, which follows from it
"""

from dpgateway.status.figures import Figures
from dpgateway.status.problems import troubles
from dpgateway.status.readiness import Readiness, readiness
from dpgateway.status.report import Report, report
from dpgateway.status.values import SCHEMA, Gateway, Reloads, Resource, Standing, Status, pieces, to_json

__all__ = [
    "SCHEMA",
    "Figures",
    "Gateway",
    "Readiness",
    "Reloads",
    "Report",
    "Resource",
    "Standing",
    "Status",
    "pieces",
    "readiness",
    "report",
    "to_json",
    "troubles",
]
