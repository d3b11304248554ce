import asyncio
import logging
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dpgateway.deviceplugin.api import APIS
from dpgateway.deviceplugin.registration.client import ApiRefused, RegisterFailed
from dpgateway.deviceplugin.registration.lifecycle import State
from dpgateway.deviceplugin.registration.registrar import STREAM_DUE, Registrar
from dpgateway.deviceplugin.values import Options
from dpgateway.errors import KubeletError
from dpgateway.node.incarnation import Change
from tests.support.time import advance, in_virtual_time
from tests.support.waiting import turns

REFUSED = ApiRefused("requested API version is not supported")
NOT_LISTENING = RegisterFailed("UNAVAILABLE: nobody", listening=False)
FAILED = RegisterFailed("UNKNOWN: no", listening=True)


class Plug:
    """A resource and its endpoint."""

    name = "example.com/thing"

    def __init__(self):
        self.wanted = Options(prepare=False, prefer=False)
        self.spoken, self.done = [], []
        self.fails = None
        self.links = 0
        self.streams = []
        self.handlers = self

    def options(self):
        return self.wanted

    def speak(self, api):
        self.spoken.append(api.name)

    def remember_agent(self, agent):
        pass

    async def link(self):
        if self.fails:
            raise self.fails
        self.links += 1
        return f"link-{self.links}"

    def tidy(self):
        self.done.append("tidied")

    def end_streams(self):
        self.done.append("ended")


class Client:
    """A kubelet that answers when the test says so."""

    def __init__(self):
        self.apis, self.accepted = APIS, None
        self.changing = lambda: False
        self.calls = []
        self.in_flight = self.most_in_flight = 0

    async def register(self, api, registration):
        call = Call(api, registration)
        self.calls.append(call)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await call.answer
        finally:
            self.in_flight -= 1
        self.accepted = api


class Call:
    def __init__(self, api, registration):
        self.api, self.registration = api.name, registration
        self.answer = asyncio.get_running_loop().create_future()


class Rig(Registrar):
    """A registrar with both its sides."""

    def __init__(self, group, log):
        plug: Any = Plug()
        client: Any = Client()
        super().__init__(plug, plug, client, group, log)
        self.plug, self.client = plug, client

    @property
    def calls(self):
        return self.client.calls

    async def answer(self, error=None):
        """The kubelet's answer to the last Register."""
        future = self.calls[-1].answer
        future.set_exception(error) if error else future.set_result(None)
        await turns()

    async def appear(self):
        self.kubelet(Change.NEW)
        await turns()

    async def serve(self):
        """A kubelet appears, accepts, and opens its stream."""
        await self.appear()
        stream = self.stream_opened()
        await self.answer()
        assert self.state is State.SERVING
        return stream


@asynccontextmanager
async def registrar(log):
    async with asyncio.TaskGroup() as group:
        rig = Rig(group, log)
        rig.ready()
        yield rig
        rig.stop()
        assert rig.client.most_in_flight <= 1, "two Registers in flight"


@in_virtual_time
async def test_nothing_is_sent_before_there_is_a_kubelet(log):
    async with registrar(log) as rig:
        rig.options_changed()
        rig.kubelet(Change.GONE)
        await advance(1000)
        assert rig.calls == []


@in_virtual_time
async def test_register_is_sent_once_ready(log):
    async with asyncio.TaskGroup() as group:
        rig = Rig(group, log)
        await rig.appear()
        await advance(1000)
        assert rig.calls == []
        rig.ready()
        await turns()
        assert len(rig.calls) == 1
        rig.stop()


@in_virtual_time
async def test_a_new_kubelet_gets_a_register(log, records):
    """At once, with a new link and the options."""
    async with registrar(log) as rig:
        rig.plug.wanted = Options(prepare=True, prefer=False)
        await rig.appear()
        (call,) = rig.calls
        assert call.registration.endpoint == "link-1"
        assert call.registration.options == rig.plug.wanted
        assert (call.api, rig.plug.spoken) == ("v1beta1", ["v1beta1"])
        rig.stream_opened()
        assert rig.plug.done == ["tidied"]
        await rig.answer()
        assert records.texts() == ["registered"]


@in_virtual_time
async def test_the_next_older_api_is_tried(log):
    """In the same attempt; it is spoken before Register is sent."""
    async with registrar(log) as rig:
        await rig.appear()
        await rig.answer(REFUSED)
        await rig.answer(REFUSED)
        assert [call.api for call in rig.calls] == ["v1beta1", "v1alpha2", "v1alpha1"]
        assert rig.plug.spoken == [call.api for call in rig.calls]
        assert len({call.registration.endpoint for call in rig.calls}) == 3
        assert not rig.standing.value.registered
        await rig.answer()
        assert (rig.state, rig.standing.value.api) == (State.EXPECTING, "v1alpha1")
        refused = {(api, "api_refused"): 1 for api in ("v1beta1", "v1alpha2")}
        assert rig.record.attempts == {**refused, ("v1alpha1", "accepted"): 1}


@in_virtual_time
async def test_an_attempt_begins_with_the_last_api(log):
    async with registrar(log) as rig:
        rig.client.accepted = APIS[1]
        await rig.appear()
        assert rig.calls[0].api == "v1alpha2"


@in_virtual_time
async def test_without_an_api_left_it_waits(log, records):
    async with registrar(log) as rig:
        await rig.appear()
        for _ in APIS:
            await rig.answer(REFUSED)
        assert (rig.state, len(rig.calls)) == (State.WAITING, 3)
        await advance(1.3)
        assert rig.calls[3].api == "v1beta1"


@in_virtual_time
async def test_a_starting_kubelet_is_retried_soon(log, records):
    """After 10, 20, 40 ms, without a warning."""
    async with registrar(log) as rig:
        await rig.appear()
        for count, pause in enumerate([0.010, 0.020, 0.040], 1):
            await rig.answer(NOT_LISTENING)
            await advance(pause - 0.001)
            assert len(rig.calls) == count
            await advance(0.001)
            assert len(rig.calls) == count + 1
        assert records.texts() == []


@in_virtual_time
async def test_unavailable_settles_no_api(log):
    async with registrar(log) as rig:
        await rig.appear()
        await rig.answer(NOT_LISTENING)
        await advance(0.01)
        assert [call.api for call in rig.calls] == ["v1beta1"] * 2
        await rig.appear()
        await turns()
        assert rig.record.attempts == {("v1beta1", "failed"): 1, ("v1beta1", "given_up"): 1}


@in_virtual_time
async def test_failures_are_retried_with_backoff(log, records):
    """After a second, doubling to a minute, with one warning."""
    async with registrar(log) as rig:
        await rig.appear()
        pauses = []
        for _ in range(10):
            await rig.answer(FAILED)
            count, pause = len(rig.calls), 0.0
            while len(rig.calls) == count:
                await advance(0.25)
                pause += 0.25
            pauses.append(pause)
        for pause, least in zip(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60], strict=True):
            assert least <= pause <= least * 1.25 + 0.25
        assert records.texts() == ["registering failed: UNKNOWN: no"]


@pytest.mark.parametrize(("seconds", "told"), [(0.999, []), (1.0, ["registering failed: UNAVAILABLE: nobody"])])
def test_a_starting_kubelet_is_no_complaint(log, records, seconds, told):
    @in_virtual_time
    async def answered_after(seconds):
        async with registrar(log) as rig:
            await rig.appear()
            await advance(seconds)
            await rig.answer(NOT_LISTENING)
            assert records.texts() == told

    answered_after(seconds)


@in_virtual_time
async def test_a_kubelet_that_refuses_for_days_is_still_tried(log):
    async with registrar(log) as rig:
        await rig.appear()
        for _ in range(1200):
            await rig.answer(FAILED)
            await advance(80)
        assert len(rig.calls) == 1201


@in_virtual_time
async def test_without_a_stream_it_registers_again(log, records):
    """After 15 s."""
    async with registrar(log) as rig:
        await rig.appear()
        await rig.answer()
        await advance(STREAM_DUE - 0.1)
        assert (rig.state, len(rig.calls)) == (State.EXPECTING, 1)
        await advance(0.2)
        assert rig.state is State.WAITING
        assert records.texts()[-1] == "the kubelet accepted the registration, but opened no stream within 15 s"
        await advance(1.3)
        assert len(rig.calls) == 2


@in_virtual_time
async def test_an_open_stream_outweighs_the_file(log):
    async with registrar(log) as rig:
        await rig.serve()
        rig.kubelet(Change.GONE)
        rig.kubelet(Change.BACK)
        rig.kubelet(Change.GONE)
        await advance(10_000)
        assert (rig.state, len(rig.calls)) == (State.SERVING, 1)


@in_virtual_time
async def test_a_lost_stream_registers_after_a_second(log):
    async with registrar(log) as rig:
        (await rig.serve()).closed()
        await advance(0.99)
        assert len(rig.calls) == 1
        await advance(0.3)
        assert len(rig.calls) == 2
        assert rig.calls[1].registration.endpoint == "link-2"


@in_virtual_time
async def test_a_timer_leaves_a_kubelet_that_comes_to_its_news(log):
    """Else it would be registered with twice, in another API, perhaps while a container starts."""
    async with registrar(log) as rig:
        (await rig.serve()).closed()
        rig.client.changing = lambda: True
        await advance(10)
        assert len(rig.calls) == 1
        await rig.appear()
        assert len(rig.calls) == 2
        rig.stream_opened().closed()
        rig.client.changing = lambda: False
        await advance(3)
        assert len(rig.calls) == 3


@in_virtual_time
async def test_short_streams_make_the_pause_longer(log):
    """One that lives resets it."""
    async with registrar(log) as rig:
        stream = await rig.serve()
        for pause in (1, 2, 4):
            stream.closed()
            await advance(pause - 0.01)
            count = len(rig.calls)
            await advance(pause / 4 + 0.02)
            assert len(rig.calls) == count + 1
            stream = rig.stream_opened()
            await rig.answer()
        await advance(60)
        stream.closed()
        await advance(1.3)
        assert len(rig.calls) == 5


@in_virtual_time
async def test_a_sent_list_is_told_once(log):
    async with registrar(log) as rig:
        stream = await rig.serve()
        assert not rig.standing.value.listed
        told = []
        rig.standing.subscribe(lambda: told.append(rig.standing.value.listed))
        for _ in range(3):
            stream.listed()
        assert told == [True]
        stream.closed()
        assert not rig.standing.value.listed


@in_virtual_time
async def test_each_stream_needs_its_list(log):
    async with registrar(log) as rig:
        first = await rig.serve()
        first.listed()
        second = rig.stream_opened()
        assert rig.standing.value.listed
        first.closed()
        assert (rig.standing.value.streaming, rig.standing.value.listed) == (True, False)
        second.listed()
        assert rig.standing.value.listed


@in_virtual_time
async def test_only_the_end_of_the_last_stream_counts(log):
    async with registrar(log) as rig:
        first = await rig.serve()
        second = rig.stream_opened()
        first.closed()
        assert (rig.state, rig.streaming) == (State.SERVING, True)
        second.closed()
        assert rig.state is State.WAITING


@in_virtual_time
async def test_a_kubelet_that_went_is_not_called(log):
    """The next one is, at once."""
    async with registrar(log) as rig:
        (await rig.serve()).closed()
        rig.kubelet(Change.GONE)
        assert rig.state is State.AWAY
        await advance(1000)
        assert len(rig.calls) == 1
        await rig.appear()
        assert len(rig.calls) == 2


@in_virtual_time
async def test_a_kubelet_that_went_before_its_stream(log):
    async with registrar(log) as rig:
        stream = await rig.serve()
        rig.kubelet(Change.GONE)
        stream.closed()
        await advance(1000)
        assert (rig.state, len(rig.calls)) == (State.AWAY, 1)


@in_virtual_time
async def test_a_file_that_is_back_registers_again(log):
    async with registrar(log) as rig:
        (await rig.serve()).closed()
        rig.kubelet(Change.GONE)
        rig.kubelet(Change.BACK)  # others still stream, so it is no new incarnation
        await turns()
        assert len(rig.calls) == 2


async def registering(rig):
    await rig.appear()


async def expecting(rig):
    await rig.appear()
    await rig.answer()


async def serving(rig):
    await rig.serve()


async def waiting(rig):
    await rig.appear()
    await rig.answer(FAILED)


@pytest.mark.parametrize("reach", [registering, expecting, serving, waiting], ids=lambda one: one.__name__)
@in_virtual_time
async def test_a_new_kubelet_from_every_state(log, reach):
    async with registrar(log) as rig:
        await reach(rig)
        await rig.appear()
        assert (rig.state, len(rig.calls)) == (State.REGISTERING, 2)
        assert rig.client.in_flight == 1
        rig.stream_opened()
        await rig.answer()
        await advance(100)
        assert (rig.state, len(rig.calls)) == (State.SERVING, 2)


@in_virtual_time
async def test_streams_of_an_older_kubelet_are_disowned_not_ended(log):
    async with registrar(log) as rig:
        old = await rig.serve()
        await rig.appear()
        assert not rig.streaming
        old.listed()
        assert not rig.standing.value.listed
        new = rig.stream_opened()
        await rig.answer()
        old.closed()
        assert (rig.state, "ended" in rig.plug.done) == (State.SERVING, False)
        new.closed()
        assert rig.state is State.WAITING


@in_virtual_time
async def test_a_late_answer_of_an_older_attempt_changes_nothing(log):
    async with registrar(log) as rig:
        await rig.appear()
        stream = rig.stream_opened()  # before Register returned, as on every release
        stream.closed()
        assert (rig.state, rig.client.in_flight) == (State.WAITING, 1)
        await turns()
        assert rig.client.in_flight == 0
        await advance(1.3)
        assert len(rig.calls) == 2
        rig.stream_opened()
        await rig.answer(FAILED)
        assert rig.state is State.SERVING


@in_virtual_time
async def test_a_late_stream_is_as_good(log):
    """Of a Register that was given up."""
    async with registrar(log) as rig:
        await waiting(rig)
        rig.stream_opened()
        await advance(1000)
        assert (rig.state, len(rig.calls)) == (State.SERVING, 1)


@in_virtual_time
async def test_changed_options_are_registered_anew(log):
    """After the streams were ended."""
    async with registrar(log) as rig:
        stream = await rig.serve()
        rig.options_changed()
        assert rig.state is State.SERVING
        rig.plug.wanted = Options(prepare=True, prefer=False)
        rig.options_changed()
        assert rig.plug.done[-1] == "ended"
        assert (rig.state, len(rig.calls)) == (State.WAITING, 1)
        stream.closed()
        await advance(1.3)
        assert rig.calls[1].registration.options == rig.plug.wanted
        assert rig.plug.done.count("ended") == 1


@in_virtual_time
async def test_options_that_changed_while_registering(log):
    async with registrar(log) as rig:
        await rig.appear()
        rig.plug.wanted = Options(prepare=True, prefer=False)
        rig.options_changed()
        assert (rig.state, len(rig.calls)) == (State.REGISTERING, 1)
        rig.stream_opened().closed()
        await advance(1.3)
        assert rig.calls[1].registration.options == rig.plug.wanted


@pytest.mark.parametrize("error", [KubeletError("no directory"), OSError("no space"), LookupError("a bug")], ids=repr)
@in_virtual_time
async def test_a_failure_before_sending_is_retried(log, records, error):
    async with registrar(log) as rig:
        rig.plug.fails = error
        await rig.appear()
        assert (rig.state, rig.calls) == (State.WAITING, [])
        assert records.texts(logging.WARNING)
        rig.plug.fails = None
        await advance(1.3)
        assert len(rig.calls) == 1


@pytest.mark.parametrize("reach", [registering, expecting, serving, waiting], ids=lambda one: one.__name__)
@in_virtual_time
async def test_after_the_stop_nothing_is_sent_any_more(log, reach):
    async with registrar(log) as rig:
        await reach(rig)
        count = len(rig.calls)
        rig.stop()
        await turns()
        assert rig.client.in_flight == 0
        rig.kubelet(Change.NEW)
        rig.options_changed()
        await advance(1000)
        assert (rig.state, len(rig.calls)) == (State.STOPPED, count)
