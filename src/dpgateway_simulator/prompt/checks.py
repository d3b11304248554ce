"""The verbs that wait, check or show: `wait`, `expect`, `see`, `table`, `print`."""

from typing import Any

from dpgateway_simulator.kubelet.kubelet import Kubelet
from dpgateway_simulator.kubelet.store import CHECKPOINT
from dpgateway_simulator.prompt.session import Session, StepError, WordsError, exactly, number, wanted


async def wait(session: Session, words: list[str]) -> None:
    patience = session.patience
    if len(words) > 2 and words[-2] == "within":
        patience, words = number(words[-1], "a number of seconds"), words[:-2]
    goals = [wanted(word) for word in words]
    if not goals:
        raise WordsError("found nothing, expected RESOURCE=N")
    try:
        await session.kubelet.wait_for(lambda: all(goal.holds(session.kubelet) for goal in goals), patience)
    except TimeoutError as error:
        raise StepError(f"not {' '.join(words)} within {patience:g} s; {_counts(session)}") from error


async def expect(session: Session, words: list[str]) -> None:
    kubelet = session.kubelet
    states = {"crashed": bool(kubelet.crashed), "running": kubelet.running, "ended": not kubelet.running}
    if len(words) == 1 and words[0] in states:
        if not states[words[0]]:
            raise StepError(f"the kubelet isn't {words[0]}")
        return
    if words[:1] == ["pod"]:
        (name,) = exactly(words[1:], "POD")
        if name not in kubelet.pods:
            raise StepError(f"no pod {name}, there are: {', '.join(kubelet.pods) or 'none'}")
        return
    if not words:
        raise WordsError("found nothing, expected RESOURCE=N, pod POD, crashed, running or ended")
    missed = [word for word in words if not wanted(word).holds(kubelet)]
    if missed:
        raise StepError(f"not {' '.join(missed)}; {_counts(session)}")


def _counts(session: Session) -> str:
    if not session.kubelet.running:
        return "the kubelet isn't running"
    now = session.kubelet.capacity()
    rows = [f"{name}={now['allocatable'].get(name, 0)}/{count}" for name, count in now["capacity"].items()]
    return f"there is {' '.join(rows) or 'nothing'}"


async def see(session: Session, words: list[str]) -> None:
    if not words:
        raise WordsError("found nothing, expected EVENT [FIELD=VALUE] ...")
    fields = dict(word.partition("=")[::2] for word in words[1:])
    kind = words[0].replace("_", " ")

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


async def table(session: Session, words: list[str]) -> None:
    session.write("table", chosen(session.kubelet, words))


def chosen(kubelet: Kubelet, words: list[str]) -> dict[str, Any]:
    """All resources, or those that are named."""
    found = kubelet.resources()
    unknown = [word for word in words if word not in found]
    if unknown:
        raise StepError(f"no resource {unknown[0]}, there are: {', '.join(found) or 'none'}")
    return {name: found[name] for name in words or found}


async def show(session: Session, words: list[str]) -> None:
    kubelet = session.kubelet
    value: Any
    match words:
        case ["capacity"]:
            value = kubelet.capacity()
        case ["files"]:
            value = sorted(path.name for path in kubelet.directory.iterdir())
        case ["checkpoint"]:
            path = kubelet.directory / CHECKPOINT
            value = path.read_text() if path.exists() else None
        case ["devices", pod_name, container]:
            value = kubelet.devices(pod_name, container)["container"]
        case _:
            raise WordsError(
                f"found {' '.join(words)!r}, expected capacity, files, checkpoint or devices POD CONTAINER"
            )
    session.write(words[0], value)
