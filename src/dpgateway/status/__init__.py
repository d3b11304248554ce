"""The gateway's whole state at one moment, as a frozen value made on request.

values        the status value, and its JSON
overview      makes status, figures and readiness on request
snapshot      converts the gateway's parts to status values
figures       the gateway in numbers, without devices, for metrics
readiness     readiness for probes, and the report to systemd
troubles      the troubles that follow from a status, with advice
dra_troubles  those of the front for DRA
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
