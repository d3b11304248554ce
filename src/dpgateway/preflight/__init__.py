"""What the upgrade of a node's kubelet would do to containers and their devices: facts in, findings out.

``dpgateway.cli.facts`` asks the node for the facts; ``dpgateway.node.versions`` knows what each kubelet does.

values          the facts, and what is found
detect_version  which version the present kubelet may be of
verdicts        what follows from the facts
features        what the upgrade brings or takes away
rehearsed       what became of the pods in the rehearsal
"""

from dpgateway.preflight.rehearsed import Rehearsal
from dpgateway.preflight.values import SCHEMA, Facts, Finding, Held, OfferedResource, RuntimeFacts, Verdict
from dpgateway.preflight.verdicts import judge, verdict

__all__ = [
    "SCHEMA",
    "Facts",
    "Finding",
    "Held",
    "OfferedResource",
    "Rehearsal",
    "RuntimeFacts",
    "Verdict",
    "judge",
    "verdict",
]
