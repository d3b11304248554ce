"""What the parts of one life of a kubelet share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.clock import Clock
from dpgateway_simulator.kubelet.errors import Crashed
from dpgateway_simulator.kubelet.events import Journal
from dpgateway_simulator.kubelet.ledger import Ledger
from dpgateway_simulator.kubelet.tasks import Tasks


@dataclass
class Life:
    """From one start of a kubelet to its end. `save` writes the checkpoint, `crash` makes the kubelet panic."""

    behaviour: Behaviour
    directory: Path
    clock: Clock
    journal: Journal
    ledger: Ledger
    save: Callable[[], None]
    crash: Callable[[str], Crashed]
    tasks: Tasks = field(default_factory=Tasks)
    sources_ready: bool = True
    running: frozenset[tuple[str, str]] = frozenset()  # (pod, container) that the runtime found running at start
