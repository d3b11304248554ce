"""Completion of a line: verbs, and the present versions, resources, pods, containers and events."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from grpclib.const import Status
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from dpgateway_simulator.apiserver.admitting import FIELDS
from dpgateway_simulator.kubelet.kubelet import Kubelet
from dpgateway_simulator.kubelet.releases import versions
from dpgateway_simulator.prompt.cluster_verbs import FAULTS, PHASES
from dpgateway_simulator.prompt.verbs import Verb


def candidates(kubelet: Kubelet, verb: str, words: Sequence[str]) -> Iterable[str]:
    """The possible next words, from the words between the verb and the cursor."""
    resources = kubelet.resources() if kubelet.running else {}
    amounts = [f"{name}={len(about['devices'])}" for name, about in resources.items()]  # all of its devices
    ones, others = [f"{name}=1" for name in resources], [name for name in resources if name not in words]
    pods, kinds = kubelet.pods, {one.kind.replace(" ", "_"): one for one in kubelet.events}  # the last one of each kind
    said = kinds[words[0]].fields.items() if words and words[0] in kinds else ()
    containers = [name for word in words[-1:] for name in kubelet.containers(word)]
    # For a verb, with or without its first word: what may come next, after that, and so on; the last goes on for ever.
    table: dict[str, Sequence[Iterable[str]]] = {
        "wait": [amounts, [*amounts, "within"]],
        "expect": [[*amounts, "pod", "crashed", "running", "ended"], amounts],
        "expect pod": [pods, ()],
        "see": [sorted(kinds), [f"{name}={value}" for name, value in said if " " not in str(value)]],
        "pod": [(), ones],
        "reject": [(), ones, [*ones, "because"]],
        "restart-container": [pods, containers, ()],
        "delete": [pods, ["--force"]],
        "phase": [pods, PHASES, ()],
        "create": [(), ones],
        "api": [[one.split()[0] for one in FAULTS.split(" | ")], ()],
        "api gate": [FIELDS, ["on", "off"], ()],
        "restart": [["gracefully"], ()],
        "upgrade": [reversed(versions()), ()],
        "drop-streams": [resources, ()],
        "misbehave": [["refuse", "stall", "slow", "late"], ()],
        "misbehave refuse": [[one.name for one in Status if one is not Status.OK], ()],
        "misbehave stall": [resources, ()],
        "socket": [["touch", "rename", "delete", "recreate"], ()],
        "table": [others],
        "watch": [others],
        "print": [["capacity", "files", "checkpoint", "devices"], ()],
        "print devices": [pods, containers, ()],
    }
    both, number = " ".join([verb, *words[:1]]), len(words)
    found, number = (table[both], number - 1) if words and both in table else (table.get(verb, [()]), number)
    return found[min(number, len(found) - 1)]


class LineCompleter(Completer):
    """Completes lines for a kubelet. `verbs`: all verbs of the prompt, whose help is shown beside them."""

    def __init__(self, kubelet: Kubelet, verbs: Mapping[str, Verb]) -> None:
        self._kubelet, self._verbs = kubelet, verbs
        self._paths = PathCompleter()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        *before, word = document.text_before_cursor.split(" ")
        words = [one for one in before if one]
        if words[:1] in ([], ["help"]):
            known = self._verbs if len(words) < 2 else {}
            yield from (
                Completion(name, -len(word), display_meta=verb.help)
                for name, verb in known.items()
                if name.startswith(word)
            )
        elif words[0] == "run":
            yield from self._paths.get_completions(Document(word), complete_event)
        else:
            if words[0] in {"pod", "reject"}:
                word = word.rpartition(":")[2]  # the resource in [init:|sidecar:]CONTAINER:RESOURCE
            found = candidates(self._kubelet, words[0], words[1:])
            yield from (Completion(one, -len(word)) for one in found if one.startswith(word))
