"""The verbs that act on the kubelet: each parses its words and returns an act.

Parsing raises WordsError before anything runs, so a script is checked whole before its first step. A failed act raises
StepError, or the error of the kubelet or the cluster (FAILURES).
"""

import asyncio

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from dpgateway_simulator.apiserver import ApiRefusal
from dpgateway_simulator.cluster.cluster import PodEndedError
from dpgateway_simulator.kubelet.errors import Crashed, NotRunningError
from dpgateway_simulator.kubelet.kubelet import Kubelet
from dpgateway_simulator.kubelet.releases import UnknownVersionError, behaviour
from dpgateway_simulator.prompt import cluster_verbs
from dpgateway_simulator.prompt.session import (
    Act,
    Session,
    StepError,
    WordsError,
    at_once,
    exactly,
    number,
    pod_containers,
    wordless,
)


def pod(words: list[str]) -> Act:
    if not words:
        raise WordsError("found nothing, expected POD RESOURCE=N ...")
    given = cluster_verbs.pod_words(words[1:])
    app, init = pod_containers(word for word in words[1:] if "claim=" not in word)

    async def act(session: Session) -> None:
        if session.cluster is not None or given["claims"]:
            await cluster_verbs.cluster_of(session).run(words[0], within=session.patience, **given)
            return
        reply = await session.kubelet.admit(words[0], app, init)
        if not reply["ok"]:
            raise StepError(f"pod {words[0]} failed in {reply['stage']}: {reply['error']}")

    return act


def reject(words: list[str]) -> Act:
    # The kubelet's message has spaces, so all words after `because` belong to it.
    text = ""
    if "because" in words:
        at = words.index("because")
        words, text = words[:at], " ".join(words[at + 1 :])
    if len(words) < 2:
        raise WordsError("found nothing to ask for, expected POD RESOURCE=N ... [because TEXT]")
    name = words[0]
    app, init = pod_containers(words[1:])

    async def act(session: Session) -> None:
        reply = await session.kubelet.admit(name, app, init)
        if reply["ok"]:
            raise StepError(f"pod {name} was admitted")
        if text not in reply["error"]:
            raise StepError(f"pod {name} was refused for another reason: {reply['error']}")

    return act


def restart_container(words: list[str]) -> Act:
    name, container = exactly(words, "POD", "CONTAINER")

    async def act(session: Session) -> None:
        reply = await session.kubelet.start_container(name, container)
        if not reply["ok"]:
            raise StepError(reply["error"])

    return act


def delete(words: list[str]) -> Act:
    force = "--force" in words
    (name,) = exactly([word for word in words if word != "--force"], "POD")

    async def act(session: Session) -> None:
        if session.cluster is None:
            session.kubelet.remove(name)
        elif session.cluster.pod(name) is None:
            raise StepError(f"there is no pod {name}")
        else:
            session.cluster.delete(name, force=force)

    return act


async def _start(session: Session) -> None:
    if session.kubelet.running:
        raise StepError("the kubelet is running already")
    await session.kubelet.start()


start = wordless(_start)
stop = wordless(lambda session: session.kubelet.stop())
kill = wordless(lambda session: session.kubelet.kill())
reboot = wordless(lambda session: session.kubelet.reboot())
behave = wordless(at_once(lambda session: session.kubelet.misbehaviour.behave()))


def restart(words: list[str]) -> Act:
    if words not in ([], ["gracefully"]):
        raise WordsError(f"found {' '.join(words)!r}, expected nothing or gracefully")
    return lambda session: session.kubelet.restart(graceful=bool(words))


def upgrade(words: list[str]) -> Act:
    (version,) = exactly(words, "VERSION")
    try:
        behaviour(version)
    except UnknownVersionError as error:
        raise WordsError(str(error)) from error
    return lambda session: session.kubelet.upgrade(version)


def register(words: list[str]) -> Act:
    resource, endpoint, *version = words if len(words) == 2 else exactly(words, "RESOURCE", "ENDPOINT", "VERSION")

    async def act(session: Session) -> None:
        try:
            await session.kubelet.register(resource, endpoint, *(version or [session.kubelet.behaviour.api]))
        except GRPCError as error:
            raise StepError(f"Register answered {error.status.name}: {error.message}") from error

    return act


def clock(words: list[str]) -> Act:
    seconds = number(exactly(words, "SECONDS")[0], "a number of seconds")
    return at_once(lambda session: session.kubelet.clock.advance(seconds))


def drop_streams(words: list[str]) -> Act:
    resources = words and exactly(words, "RESOURCE")
    return at_once(lambda session: session.kubelet.drop_streams(*resources))


def misbehave(words: list[str]) -> Act:
    match words:
        case ["refuse", code, *text]:
            if code.upper() not in Status.__members__:
                raise WordsError(f"found {code!r}, expected a gRPC status such as UNAVAILABLE")
            return at_once(lambda session: session.kubelet.misbehaviour.refuse_register(" ".join(text), code))
        case ["stall"] | ["stall", _]:
            return at_once(lambda session: session.kubelet.misbehaviour.stall_register(*words[1:]))
        case ["slow" | "late", word]:
            seconds = number(word, "a number of seconds")
            field = "register_delay" if words[0] == "slow" else "late_listen"
            return at_once(lambda session: setattr(session.kubelet.misbehaviour, field, seconds))
    expected = "refuse CODE TEXT, stall [RESOURCE], slow SECONDS or late SECONDS"
    raise WordsError(f"found {' '.join(words)!r}, expected {expected}")


def socket(words: list[str]) -> Act:
    if len(words) != 1 or words[0] not in {"touch", "rename", "delete", "recreate"}:
        raise WordsError(f"found {' '.join(words)!r}, expected touch, rename, delete or recreate")

    act = {"touch": Kubelet.touch_socket, "rename": Kubelet.rename_socket, "delete": Kubelet.delete_socket}.get(
        words[0]
    )
    return at_once(lambda session: act(session.kubelet)) if act else lambda session: session.kubelet.recreate_socket()


def execute(words: list[str]) -> Act:
    if not words:
        raise WordsError("found nothing, expected COMMAND [ARGUMENT] ...")

    async def act(_: Session) -> None:
        process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.DEVNULL)
        if status := await process.wait():
            raise StepError(f"exit status {status}")

    return act


def pause(words: list[str]) -> Act:
    seconds = number(exactly(words, "SECONDS")[0], "a number of seconds")
    return lambda _: asyncio.sleep(seconds)


FAILURES = (StepError, Crashed, NotRunningError, ApiRefusal, PodEndedError, OSError)
"""TimeoutError, of a wait for a pod's phase, is an OSError."""
