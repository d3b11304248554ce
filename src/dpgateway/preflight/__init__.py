"""What the upgrade of a node's kubelet would do to who holds which device. Plain values in, findings out: who asks the
node for these values is in ``dpgateway.cli``, what each kubelet does is in ``dpgateway.node.versions``.
"""

from dpgateway.preflight.rehearsed import Rehearsal
from dpgateway.preflight.values import SCHEMA, Facts, Finding, Held, Runtime, Served, Verdict
from dpgateway.preflight.verdicts import judge, verdict

__all__ = ["SCHEMA", "Facts", "Finding", "Held", "Rehearsal", "Runtime", "Served", "Verdict", "judge", "verdict"]
