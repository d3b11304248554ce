"""The verbs that do something. A step that fails raises StepError; one that can't be read raises WordsError."""

import asyncio

from grpclib.exceptions import GRPCError

from dpgateway_simulator.kubelet.errors import Crashed, NotRunningError
from dpgateway_simulator.kubelet.releases import UnknownVersionError
from dpgateway_simulator.prompt.session import (
    Session,
    StepError,
    WordsError,
    exactly,
    number,
    pod_containers,
)


async def pod(session: Session, words: list[str]) -> None:
    if not words:
        raise WordsError("found nothing, expected POD RESOURCE=N ...")
    app, init = pod_containers(words[1:])
    reply = await session.kubelet.admit(words[0], app, init)
    if not reply["ok"]:
        raise StepError(f"pod {words[0]} failed in {reply['stage']}: {reply['error']}")


async def reject(session: Session, words: list[str]) -> None:
    text = ""
    if "because" in words:
        at = words.index("because")
        words, text = words[:at], " ".join(words[at + 1 :])
    if len(words) < 2:
        raise WordsError("found nothing to ask for, expected POD RESOURCE=N ... [because TEXT]")
    app, init = pod_containers(words[1:])
    reply = await session.kubelet.admit(words[0], app, init)
    if reply["ok"]:
        raise StepError(f"pod {words[0]} was admitted")
    if text not in reply["error"]:
        raise StepError(f"pod {words[0]} was refused for another reason: {reply['error']}")


async def restart_container(session: Session, words: list[str]) -> None:
    name, container = exactly(words, "POD", "CONTAINER")
    reply = await session.kubelet.start_container(name, container)
    if not reply["ok"]:
        raise StepError(reply["error"])


async def delete(session: Session, words: list[str]) -> None:
    (name,) = exactly(words, "POD")
    session.kubelet.remove(name)


async def start(session: Session, words: list[str]) -> None:
    exactly(words)
    if session.kubelet.running:
        raise StepError("the kubelet is running already")
    await session.kubelet.start()


async def stop(session: Session, words: list[str]) -> None:
    exactly(words)
    await session.kubelet.stop()


async def kill(session: Session, words: list[str]) -> None:
    exactly(words)
    await session.kubelet.kill()


async def restart(session: Session, words: list[str]) -> None:
    if words not in ([], ["gracefully"]):
        raise WordsError(f"found {' '.join(words)!r}, expected nothing or gracefully")
    await session.kubelet.restart(graceful=bool(words))


async def upgrade(session: Session, words: list[str]) -> None:
    (version,) = exactly(words, "VERSION")
    try:
        await session.kubelet.upgrade(version)
    except UnknownVersionError as error:
        raise WordsError(str(error)) from error


async def register(session: Session, words: list[str]) -> None:
    if len(words) == 2:
        words = [*words, session.kubelet.behaviour.api]
    resource, endpoint, version = exactly(words, "RESOURCE", "ENDPOINT", "VERSION")
    try:
        await session.kubelet.register(resource, endpoint, version)
    except GRPCError as error:
        raise StepError(f"Register answered {error.status.name}: {error.message}") from error


async def clock(session: Session, words: list[str]) -> None:
    (seconds,) = exactly(words, "SECONDS")
    session.kubelet.clock.advance(number(seconds, "a number of seconds"))


async def drop_streams(session: Session, words: list[str]) -> None:
    session.kubelet.drop_streams(*(words and exactly(words, "RESOURCE")))


async def misbehave(session: Session, words: list[str]) -> None:
    misbehaviour = session.kubelet.misbehaviour
    match words:
        case ["refuse", code, *text]:
            try:
                misbehaviour.refuse_register(" ".join(text), code)
            except KeyError as error:
                raise WordsError(f"found {code!r}, expected a gRPC status such as UNAVAILABLE") from error
        case ["stall"]:
            misbehaviour.stall_register()
        case ["stall", resource]:
            misbehaviour.stall_register(resource)
        case ["late", seconds]:
            misbehaviour.late_listen = number(seconds, "a number of seconds")
        case _:
            expected = "refuse CODE TEXT, stall [RESOURCE] or late SECONDS"
            raise WordsError(f"found {' '.join(words)!r}, expected {expected}")


async def behave(session: Session, words: list[str]) -> None:
    exactly(words)
    session.kubelet.misbehaviour.behave()


async def socket(session: Session, words: list[str]) -> None:
    match words:
        case ["touch"]:
            session.kubelet.touch_socket()
        case ["rename"]:
            session.kubelet.rename_socket()
        case ["delete"]:
            session.kubelet.delete_socket()
        case ["recreate"]:
            await session.kubelet.recreate_socket()
        case _:
            raise WordsError(f"found {' '.join(words)!r}, expected touch, rename, delete or recreate")


async def execute(session: Session, words: list[str]) -> None:
    if not words:
        raise WordsError("found nothing, expected COMMAND [ARGUMENT] ...")
    process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.DEVNULL)
    if status := await process.wait():
        raise StepError(f"exit status {status}")


async def pause(session: Session, words: list[str]) -> None:
    (seconds,) = exactly(words, "SECONDS")
    await asyncio.sleep(number(seconds, "a number of seconds"))


FAILURES = (StepError, Crashed, NotRunningError, OSError)
