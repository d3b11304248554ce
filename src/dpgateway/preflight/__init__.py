"""Obstacles to the gateway on a node, and the effects of a kubelet upgrade on containers: facts in, findings out.

``dpgateway.cli.facts`` collects the facts; ``dpgateway.node.versions`` describes each kubelet version.

values          the facts and the findings
detect_version  the possible versions of the present kubelet
verdicts        the findings that follow from the facts
features        the features that an upgrade adds or removes
rehearsed       the findings of a rehearsal
site            the findings about the place where the gateway runs
front           the findings about a change of the front
"""

from dpgateway.preflight.rehearsed import Rehearsal
from dpgateway.preflight.values import (
    SCHEMA,
    DevicesOfClaim,
    Facts,
    Finding,
    Held,
    OfferedResource,
    RuntimeFacts,
    Site,
    Verdict,
)
from dpgateway.preflight.verdicts import judge, verdict

__all__ = [
    "SCHEMA",
    "DevicesOfClaim",
    "Facts",
    "Finding",
    "Held",
    "OfferedResource",
    "Rehearsal",
    "RuntimeFacts",
    "Site",
    "Verdict",
    "judge",
    "verdict",
]
