"""Completion of a line: verbs, and the present versions, resources, pods, containers and events."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from grpclib.const import Status
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from dpgateway_simulator.apiserver.admitting import FIELDS
from dpgateway_simulator.kubelet.kubelet import Kubelet
from dpgateway_simulator.kubelet.releases import versions
from dpgateway_simulator.prompt.cluster_verbs import FAULTS, PHASES
from dpgateway_simulator.prompt.verbs import Verb

Words = list[str]
Candidates = Callable[[Kubelet, Words], Iterable[str]]
"""The possible next words, from a kubelet and the words between the verb and the cursor."""


def resources(kubelet: Kubelet) -> list[str]:
    return list(kubelet.resources()) if kubelet.running else []


def amounts(kubelet: Kubelet) -> list[str]:
    """RESOURCE=N for every resource; N is the number of its devices."""
    found = kubelet.resources() if kubelet.running else {}
    return [f"{name}={len(about['devices'])}" for name, about in found.items()]


def _expect(kubelet: Kubelet, words: Words) -> list[str]:
    if words[:1] == ["pod"]:
        return list(kubelet.pods) if len(words) == 1 else []
    return amounts(kubelet) if words else [*amounts(kubelet), "pod", "crashed", "running", "ended"]


def _see(kubelet: Kubelet, words: Words) -> list[str]:
    """The kinds of events so far; after a kind, the fields of its last event."""
    if not words:
        return sorted({one.kind.replace(" ", "_") for one in kubelet.events})
    last = next((one for one in reversed(kubelet.events) if one.kind.replace(" ", "_") == words[0]), None)
    return [f"{name}={value}" for name, value in last.fields.items() if " " not in str(value)] if last else []


def _new_pod(kubelet: Kubelet, words: Words) -> list[str]:
    return [f"{name}=1" for name in resources(kubelet)] if words else []


def _container(kubelet: Kubelet, words: Words) -> list[str]:
    return list(kubelet.containers(words[0])) if len(words) == 1 else list(kubelet.pods) if not words else []


def _misbehave(kubelet: Kubelet, words: Words) -> list[str]:
    if words == ["stall"]:
        return resources(kubelet)
    if words == ["refuse"]:
        return [one.name for one in Status if one is not Status.OK]
    return [] if words else ["refuse", "stall", "slow", "late"]


def _print(kubelet: Kubelet, words: Words) -> list[str]:
    if words[:1] == ["devices"]:
        return _container(kubelet, words[1:])
    return [] if words else ["capacity", "files", "checkpoint", "devices"]


def _api(words: Words) -> Iterable[str]:
    match words:
        case []:
            return [one.split()[0] for one in FAULTS.split(" | ")]
        case ["gate"]:
            return FIELDS
        case ["gate", _]:
            return ["on", "off"]
    return ()


def _one_of(*choices: str) -> Candidates:
    return lambda _, words: () if words else choices


ARGUMENTS: dict[str, Candidates] = {
    "wait": lambda kubelet, words: [*amounts(kubelet), *(["within"] if words else [])],
    "expect": _expect,
    "see": _see,
    "pod": _new_pod,
    "reject": lambda kubelet, words: [*_new_pod(kubelet, words), *(["because"] if len(words) > 1 else [])],
    "restart-container": _container,
    "delete": lambda kubelet, words: ["--force"] if words else kubelet.pods,
    "phase": lambda kubelet, words: PHASES if len(words) == 1 else kubelet.pods if not words else (),
    "create": _new_pod,
    "api": lambda _, words: _api(words),
    "restart": _one_of("gracefully"),
    "upgrade": _one_of(*reversed(versions())),
    "drop-streams": lambda kubelet, words: () if words else resources(kubelet),
    "misbehave": _misbehave,
    "socket": _one_of("touch", "rename", "delete", "recreate"),
    "table": lambda kubelet, words: [name for name in resources(kubelet) if name not in words],
    "watch": lambda kubelet, words: [name for name in resources(kubelet) if name not in words],
    "print": _print,
}


class LineCompleter(Completer):
    """Completes lines for a kubelet. `verbs`: all verbs of the prompt, whose help is shown beside them."""

    def __init__(self, kubelet: Kubelet, verbs: Mapping[str, Verb]) -> None:
        self._kubelet, self._verbs = kubelet, verbs
        self._paths = PathCompleter()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        *before, word = document.text_before_cursor.split(" ")
        words = [one for one in before if one]
        if words[:1] in ([], ["help"]):
            found = self._verbs if len(words) < 2 else {}
            yield from (
                Completion(name, -len(word), display_meta=verb.help)
                for name, verb in found.items()
                if name.startswith(word)
            )
        elif words[0] == "run":
            yield from self._paths.get_completions(Document(word), complete_event)
        elif words[0] in ARGUMENTS:
            if words[0] in {"pod", "reject"}:
                word = word.rpartition(":")[2]  # the resource in [init:|sidecar:]CONTAINER:RESOURCE
            candidates = ARGUMENTS[words[0]](self._kubelet, words[1:])
            yield from (Completion(one, -len(word)) for one in candidates if one.startswith(word))
