"""The table of verbs, each a function over words. Scripts and the prompt share it."""

import difflib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dpgateway_simulator.prompt import checks, cluster_verbs, steps
from dpgateway_simulator.prompt.session import Act, WordsError


@dataclass(frozen=True)
class Verb:
    """One command: the parser of its words, their syntax, and a line of help."""

    read: Callable[[list[str]], Act]
    words: str
    help: str


VERBS: dict[str, Verb] = {
    "wait": Verb(checks.wait, "RESOURCE=N[/M] ... [within SECONDS]", "wait until N are allocatable (of M in capacity)"),
    "expect": Verb(
        checks.expect, "RESOURCE=N[/M] ... | pod POD | crashed | running | ended", "fail if it isn't so now"
    ),
    "see": Verb(
        checks.see, "EVENT [FIELD=VALUE] ...", "wait for the next such event after the one seen last; a space is _"
    ),
    "pod": Verb(
        steps.pod,
        "POD [[init:|sidecar:]CONTAINER:]RESOURCE=N ... [[CONTAINER:]claim=CLAIM]",
        "admit a pod and start its containers; with an API server it is scheduled",
    ),
    "reject": Verb(steps.reject, "POD RESOURCE=N ... [because TEXT]", "admit a pod; fail unless it is refused"),
    "restart-container": Verb(steps.restart_container, "POD CONTAINER", "start a container again"),
    "delete": Verb(steps.delete, "POD [--force]", "the pod is gone; with an API server once its kubelet has ended it"),
    "start": Verb(steps.start, "", "start the kubelet after stop, kill or a crash, without its pods"),
    "stop": Verb(steps.stop, "", "end in order"),
    "kill": Verb(steps.kill, "", "end at once; kubelet.sock stays behind"),
    "restart": Verb(steps.restart, "[gracefully]", "kill (or stop), start, and admit the running pods again"),
    "reboot": Verb(steps.reboot, "", "restart the node: no container runs, and the CDI specs in `cdi` are gone"),
    "upgrade": Verb(steps.upgrade, "VERSION", "restart as another version, newer or older"),
    "register": Verb(
        steps.register, "RESOURCE ENDPOINT [VERSION]", "send Register, as the plugin that serves ENDPOINT would"
    ),
    "drop-streams": Verb(steps.drop_streams, "[RESOURCE]", "break the connections to the plugins"),
    "misbehave": Verb(
        steps.misbehave,
        "refuse CODE TEXT | stall [RESOURCE] | slow SECONDS | late SECONDS",
        "do it from now on, until behave",
    ),
    "behave": Verb(steps.behave, "", "stop misbehaving"),
    "socket": Verb(steps.socket, "touch | rename | delete | recreate", "do it to kubelet.sock under way"),
    "clock": Verb(steps.clock, "SECONDS", "turn the kubelet's clock forward: it forgets a lost plugin after 300"),
    "table": Verb(checks.table, "[RESOURCE ...]", "print all devices, their health, NUMA nodes and holders"),
    "print": Verb(checks.show, "capacity | files | checkpoint | devices POD CONTAINER", "print it"),
    "run": Verb(steps.execute, "COMMAND [ARGUMENT] ...", "run a program, to unplug a device say; fail if it fails"),
    "create": Verb(cluster_verbs.create, "POD ...", "make a pod, as for `pod`, without waiting for it (API server)"),
    "phase": Verb(
        cluster_verbs.phase,
        "POD Pending|Running|Failed|Terminating|Gone [because TEXT]",
        "wait until a pod is in this phase (API server)",
    ),
    "class": Verb(
        cluster_verbs.device_class, "NAME DRIVER RESOURCE", "make a DeviceClass of the driver's devices (API server)"
    ),
    "claim": Verb(
        cluster_verbs.claim, "NAME CLASS [COUNT]", "make a ResourceClaim for devices of a class (API server)"
    ),
    "slices": Verb(cluster_verbs.slices, "", "print the devices in ResourceSlices, and the claims that have them"),
    "claims": Verb(cluster_verbs.claims, "", "print the ResourceClaims with their pods and devices"),
    "api": Verb(cluster_verbs.api, cluster_verbs.FAULTS, "do it to the API server"),
    "pause": Verb(steps.pause, "SECONDS", "do nothing for a while"),
}


def read(line: str, known: Mapping[str, Verb] = VERBS) -> Act:
    """Parses one line, with words quoted as in a shell. Raises WordsError."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise WordsError(f"{error} in {line!r}, expected quotes in pairs") from error
    if not words or words[0] not in known:
        raise WordsError(unknown("step", words[0] if words else line, known))
    return known[words[0]].read(words[1:])


def unknown(what: str, found: str, known: Mapping[str, Verb]) -> str:
    """The message for an unknown verb: the closest one, else all verbs."""
    close = difflib.get_close_matches(found.lower(), known, n=1)
    return f"unknown {what} {found!r}" + (
        f"; did you mean {close[0]}?" if close else f", expected one of {', '.join(known)}"
    )


def table() -> str:
    """All verbs with their words and help, as `--help` shows them."""
    width = max(len(f"{name} {verb.words}") for name, verb in VERBS.items() if len(verb.words) < 40)
    lines = []
    for name, verb in VERBS.items():
        left = f"{name} {verb.words}".rstrip()
        lines += [f"{left:<{width}}  {verb.help}"] if len(left) <= width else [left, f"{'':<{width}}  {verb.help}"]
    return "\n".join(lines)
