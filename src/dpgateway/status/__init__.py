"""Everything there is to know of the gateway now, as one frozen value. It is made when someone asks.

values     the value itself, and its JSON
overview   makes all of the following, for everyone who asks
snapshot   the values, from the parts of the gateway
figures    the same in numbers, without the devices
readiness  whether the kubelet has what it needs, for probes; the report to systemd
troubles   what is wrong, and what to do about it
"""

from dpgateway.status.figures import Figures
from dpgateway.status.readiness import Readiness, Report, readiness, report
from dpgateway.status.troubles import troubles
from dpgateway.status.values import (
    SCHEMA,
    GatewayStatus,
    Reloads,
    ResourceStatus,
    Status,
    pieces,
    to_json,
)

__all__ = [
    "SCHEMA",
    "Figures",
    "GatewayStatus",
    "Readiness",
    "Reloads",
    "Report",
    "ResourceStatus",
    "Status",
    "pieces",
    "readiness",
    "report",
    "to_json",
    "troubles",
]
