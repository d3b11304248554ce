import asyncio

from dpgateway_simulator.kubelet.events import EventLog, KubeletEvent


async def test_events_are_kept_heard_and_followed() -> None:
    journal = EventLog(lambda: 7.0)
    heard: list[KubeletEvent] = []
    forget = journal.listen(heard.append)
    journal.emit("one", devices=tuple(range(10)))
    forget()
    journal.emit("two")
    assert heard == journal.events[:1] == [KubeletEvent("one", 7.0, {"devices": tuple(range(10))})]
    assert str(heard[0]) == "one devices=0,1,2,3,4,5,6,7,... (10)"
    seen = []
    async for event in journal.follow():
        seen.append(event.kind)
        if event.kind == "two":
            journal.emit("three")
        if event.kind == "three":
            break
    assert seen == ["one", "two", "three"]


async def test_waiting_looks_again_after_every_event() -> None:
    journal = EventLog(lambda: 0.0)
    waiting = asyncio.create_task(journal.wait(lambda: len(journal.events) == 2))
    journal.emit("one")
    journal.emit("two")
    assert await waiting
