"""The verbs that wait, check or show: `wait`, `expect`, `see`, `table`, `print`. They parse words as `steps` does."""

from typing import Any

from dpgateway_simulator.kubelet.kubelet import Kubelet
from dpgateway_simulator.kubelet.store import CHECKPOINT
from dpgateway_simulator.prompt.session import (
    Act,
    Session,
    StepError,
    Wanted,
    WordsError,
    at_once,
    exactly,
    number,
    wanted,
)


def wait(words: list[str]) -> Act:
    given = None
    if len(words) > 2 and words[-2] == "within":
        given, words = number(words[-1], "a number of seconds"), words[:-2]
    goals = [wanted(word) for word in words]
    if not goals:
        raise WordsError("found nothing, expected RESOURCE=N")

    async def act(session: Session) -> None:
        patience = session.patience if given is None else given
        try:
            await session.kubelet.wait_for(lambda: all(goal.holds(session.kubelet) for goal in goals), patience)
        except TimeoutError as error:
            raise StepError(f"not {' '.join(words)} within {patience:g} s; {_counts(session)}") from error

    return act


def expect(words: list[str]) -> Act:
    goals: dict[str, Wanted] = {}
    match words:
        case []:
            raise WordsError("found nothing, expected RESOURCE=N, pod POD, crashed, running or ended")
        case ["crashed" | "running" | "ended"]:
            pass
        case ["pod", *names]:
            exactly(names, "POD")
        case _:
            goals = {word: wanted(word) for word in words}

    async def act(session: Session) -> None:
        kubelet = session.kubelet
        states = {"crashed": bool(kubelet.crashed), "running": kubelet.running, "ended": not kubelet.running}
        match words:
            case [state] if state in states:
                if not states[state]:
                    raise StepError(f"the kubelet isn't {state}")
            case ["pod", name]:
                if name not in kubelet.pods:
                    raise StepError(f"no pod {name}, there are: {', '.join(kubelet.pods) or 'none'}")
        if missed := [word for word, goal in goals.items() if not goal.holds(kubelet)]:
            raise StepError(f"not {' '.join(missed)}; {_counts(session)}")

    return act


def _counts(session: Session) -> str:
    if not session.kubelet.running:
        return "the kubelet isn't running"
    now = session.kubelet.capacity()
    rows = [f"{name}={now['allocatable'].get(name, 0)}/{count}" for name, count in now["capacity"].items()]
    return f"there is {' '.join(rows) or 'nothing'}"


def see(words: list[str]) -> Act:
    if not words:
        raise WordsError("found nothing, expected EVENT [FIELD=VALUE] ...")
    fields = dict(word.partition("=")[::2] for word in words[1:])
    kind = words[0].replace("_", " ")

    async def act(session: Session) -> None:
        # Each event is consumed once: the next `see` continues after the event that this one found.
        def seen() -> bool:
            while session.seen < len(session.kubelet.events):
                one = session.kubelet.events[session.seen]
                session.seen += 1
                if one.kind == kind and all(str(one.fields.get(name)) == value for name, value in fields.items()):
                    return True
            return False

        try:
            await session.kubelet.wait_for(seen, session.patience)
        except TimeoutError as error:
            raise StepError(f"no event {' '.join(words)} within {session.patience:g} s") from error

    return act


def table(words: list[str]) -> Act:
    return at_once(lambda session: session.write("table", chosen(session.kubelet, words)))


def chosen(kubelet: Kubelet, words: list[str]) -> dict[str, Any]:
    """All resources, or the named ones."""
    found = kubelet.resources()
    unknown = [word for word in words if word not in found]
    if unknown:
        raise StepError(f"no resource {unknown[0]}, there are: {', '.join(found) or 'none'}")
    return {name: found[name] for name in words or found}


def show(words: list[str]) -> Act:
    match words:
        case ["capacity" | "files" | "checkpoint"] | ["devices", _, _]:
            pass
        case _:
            expected = "capacity, files, checkpoint or devices POD CONTAINER"
            raise WordsError(f"found {' '.join(words)!r}, expected {expected}")

    async def act(session: Session) -> None:
        kubelet = session.kubelet
        value: Any = None
        match words:
            case ["capacity"]:
                value = kubelet.capacity()
            case ["files"]:
                value = sorted(path.name for path in kubelet.directory.iterdir())
            case ["checkpoint"]:
                path = kubelet.directory / CHECKPOINT
                value = path.read_text() if path.exists() else None
            case [_, pod, container]:
                value = kubelet.devices(pod, container)["container"]
        session.write(words[0], value)

    return act
