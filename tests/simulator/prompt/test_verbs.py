"""The words that drive a simulated kubelet."""

from typing import Any

import pytest

from dpgateway_simulator import Kubelet
from dpgateway_simulator.prompt import verbs
from dpgateway_simulator.prompt.session import Session, StepError, WordsError
from tests.simulator.rig import PluginRig, Rig, X


class Rehearsal(Session):
    """A session that keeps what it prints, beside the plugin of its kubelet."""

    def __init__(self, kubelet: Kubelet, plugin: PluginRig, rig: Rig) -> None:
        self.printed: list[tuple[str, Any]] = []
        super().__init__(kubelet, lambda name, value: self.printed.append((name, value)), patience=0)
        self.plugin, self.rig = plugin, rig


@pytest.fixture
async def session(rig: Rig) -> Rehearsal:
    return Rehearsal(*await rig.both("1.24"), rig)


async def do(session: Session, *lines: str) -> None:
    for line in lines:
        await verbs.read(line)(session)


async def test_a_rehearsal(session: Rehearsal) -> None:
    await do(
        session, f"wait {X}=2/2 within 1", f"pod p1 {X}=1  # one", "expect pod p1", f"expect {X}=2", "expect running"
    )
    await do(session, "restart-container p1 c", "delete p1", f"pod p2 a:{X}=1 b:{X}=1", "upgrade 1.37")
    await session.plugin.stop()
    await session.rig.plugin(session.kubelet, "again.sock").start()
    await do(session, "print capacity", "print files", "print devices p2 a", "print checkpoint")
    assert [name for name, _ in session.printed] == ["capacity", "files", "devices", "checkpoint"]
    assert session.printed[0][1]["allocatable"] == {X: 2}
    await do(
        session, f"reject p3 {X}=1 because unavailable for {X}", f"reject p4 {X}=9", "restart", "restart gracefully"
    )
    await do(session, "stop", "expect ended", "start", "kill", "start", "behave", "pause 0", "run true")


async def test_misbehaving_in_words(session: Rehearsal) -> None:
    await do(session, "misbehave refuse UNAVAILABLE not today", f"misbehave stall {X}", "misbehave stall")
    await do(session, "misbehave slow 0.5", "misbehave late 0", "behave")
    await do(
        session,
        "socket touch",
        "socket rename",
        "socket recreate",
        "socket delete",
        "socket recreate",
        f"drop-streams {X}",
    )


async def test_registering_in_words(session: Rehearsal) -> None:
    await do(session, "register example.com/y y.sock", "see registered resource=example.com/y")
    api = session.kubelet.behaviour.api
    with pytest.raises(StepError, match=r"Register answered UNKNOWN: .*v0"):
        await do(session, "register example.com/y y.sock v0")
    await do(session, f"register example.com/y y.sock {api}")


async def test_turns_the_clock(session: Rehearsal) -> None:
    await do(session, f"wait {X}=2/2 within 10")
    await session.plugin.stop()
    await do(session, f"wait {X}=0/2 within 10", "clock 299", f"expect {X}=0/2", "clock 2", "print capacity")
    assert X not in session.printed[-1][1]["capacity"]


async def test_seeing_events_in_their_order(session: Rehearsal) -> None:
    await do(session, f"pod p1 init:i:{X}=1 side:{X}=1 {X}=1")
    await do(session, "see registered", "see pod_admitted pod=p1", "see container_started container=c")
    with pytest.raises(StepError, match="no event pod_admitted pod=p1 within 0 s"):
        await do(session, "see pod_admitted pod=p1")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (f"wait {X}=3", rf"not {X}=3 within 0 s; there is {X}=2/2"),
        (f"expect {X}=2/3", rf"not {X}=2/3; there is"),
        ("expect crashed", "isn't crashed"),
        ("run false", "exit status 1"),
        ("expect ended", "isn't ended"),
        ("expect pod p1", "no pod p1, there are: none"),
        (f"pod p1 {X}=3", "pod p1 failed in admit: Allocate failed"),
        (f"reject p1 {X}=1", "pod p1 was admitted"),
        (f"reject p1 {X}=3 because of rain", "for another reason: Allocate failed"),
        ("restart-container p1 c", "not active"),
        ("start", "running already"),
    ],
)
async def test_steps_that_fail(session: Rehearsal, line: str, error: str) -> None:
    with pytest.raises(StepError, match=error):
        await do(session, line)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("dance", "unknown step 'dance', expected one of wait, expect"),
        ("wiat", r"unknown step 'wiat'; did you mean wait\?$"),
        ("Restart-Contaner p c", r"unknown step 'Restart-Contaner'; did you mean restart-container\?$"),
        ("", "unknown step ''"),
        ("pod 'p1", "No closing quotation .*expected quotes in pairs"),
        ("wait", "expected RESOURCE=N"),
        (f"wait {X}", "expected RESOURCE=ALLOCATABLE"),
        (f"wait {X}=1 within long", "found 'long', expected a number of seconds"),
        ("expect", "expected RESOURCE=N"),
        ("expect pod", "expected POD"),
        ("see", "expected EVENT"),
        ("pod", "expected POD"),
        ("pod p1 x=1", "found 'x=1', expected RESOURCE=NUMBER"),
        (f"pod p1 a:b:{X}=1", "expected .init:.sidecar:..CONTAINER:.RESOURCE=NUMBER"),
        ("reject p1", "found nothing to ask for"),
        ("delete", "found 'nothing', expected POD"),
        ("restart now", "found 'now', expected nothing or gracefully"),
        ("upgrade 1.99", "unknown kubelet version '1.99'"),
        ("misbehave", "expected refuse CODE TEXT, stall"),
        ("misbehave refuse BADLY x", "found 'BADLY', expected a gRPC status"),
        ("misbehave late soon", "expected a number of seconds"),
        ("misbehave slow down", "expected a number of seconds"),
        ("socket eat", "expected touch, rename, delete or recreate"),
        ("print money", "expected capacity, files, checkpoint or devices"),
        ("pause -1", "found '-1', expected a number of seconds"),
        ("stop now", "found 'now', expected nothing"),
    ],
)
def test_words_that_make_no_sense(line: str, error: str) -> None:
    """Without a kubelet: words are read before anything is done."""
    with pytest.raises(WordsError, match=error):
        verbs.read(line)


def test_help_has_every_verb() -> None:
    text = verbs.table()
    assert all(verb.help in text and name in text for name, verb in verbs.VERBS.items())
    assert max(map(len, text.splitlines())) <= 120
