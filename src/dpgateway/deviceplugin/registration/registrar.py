"""Does what the lifecycle table says, for one resource: sends Register, starts timers, ends streams.

Everything runs on the event loop. Events come in by method calls, also from within actions; the table is never entered
twice at once, for no action waits.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field
from typing import Protocol

from dpgateway.deviceplugin.api import Api
from dpgateway.deviceplugin.registration.client import ApiRefused, KubeletClient, RegisterFailed
from dpgateway.deviceplugin.registration.lifecycle import Action, Backoff, Event, Lifecycle, State
from dpgateway.errors import GatewayError
from dpgateway.model import Options, Registration

STREAM_DUE = 15.0
"""Seconds from Register's success to ListAndWatch: a kubelet before 1.25 dials after it answered, for up to 10 s."""


class Plug(Protocol):
    """The resource as the registrar needs it."""

    name: str

    def options(self) -> Options: ...

    def speak(self, api: Api) -> None:
        """Answer in this dialect from now on."""

    async def link(self) -> str:
        """A new endpoint, one that was never registered before; raises GatewayError or OSError."""

    def settled(self) -> None:
        """The kubelet streams from the newest endpoint; older ones aren't needed any more."""

    def end_streams(self) -> None:
        """End every stream."""


@dataclass(eq=False)
class Stream:
    """One ListAndWatch of a kubelet."""

    opened: float = field(default_factory=lambda: asyncio.get_running_loop().time())


class Registrar:
    """One resource's standing with the kubelet."""

    def __init__(
        self,
        plug: Plug,
        apis: tuple[Api, ...],
        client: KubeletClient,
        group: asyncio.TaskGroup,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._plug, self._apis, self._client, self._group, self._log = plug, apis, client, group, log
        self._lifecycle = Lifecycle(len(apis))
        self._backoff = Backoff(random.random)
        self._streams: set[Stream] = set()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._listening = False
        self._registered: Options | None = None
        self._tried = 0
        self._complaint = ""

    @property
    def state(self) -> State:
        return self._lifecycle.state

    @property
    def streaming(self) -> bool:
        """A stream of this kubelet is open."""
        return bool(self._streams)

    # what happened

    def kubelet_new(self) -> None:
        """A new incarnation; streams of older ones are disowned."""
        self._streams.clear()
        self._backoff.new_kubelet(self._now())
        self._feed(Event.KUBELET_NEW)

    def kubelet_gone(self) -> None:
        self._feed(Event.KUBELET_GONE)

    def kubelet_back(self) -> None:
        """The file of the same kubelet was seen again."""
        self._feed(Event.KUBELET_BACK)

    def stream_opened(self) -> Stream:
        self._plug.settled()
        stream = Stream()
        self._streams.add(stream)
        if self._lifecycle.state is not State.SERVING:
            self._log.debug("the kubelet listens", extra={"api": self._api.name})
        self._complaint = ""
        self._feed(Event.STREAM_OPEN)
        self.options_changed()
        return stream

    def stream_closed(self, stream: Stream) -> None:
        if stream not in self._streams:
            return  # disowned
        self._streams.remove(stream)
        if not self._streams:
            self._backoff.stream_ended(self._now() - stream.opened)
            self._listening = True
            self._log.info("the kubelet's last stream ended", extra={"api": self._api.name})
            self._feed(Event.LAST_STREAM_END)

    def options_changed(self) -> None:
        """What should be registered may differ from what is."""
        if self._registered is not None and self._registered != self._plug.options():
            self._feed(Event.REDO)

    def stop(self) -> None:
        self._feed(Event.STOP)

    # what follows

    def _feed(self, event: Event, attempt: int | None = None) -> None:
        action = self._lifecycle.feed(event, attempt)
        self._log.debug("%s: %s, %s", event.value, self._lifecycle.state.value, action.value)
        _ACTIONS[action](self)

    def _nothing(self) -> None:
        pass

    def _offer(self) -> None:
        self._forget()
        self._tried = self._apis.index(self._client.accepted) if self._client.accepted in self._apis else 0
        self._send()

    def _next_api(self) -> None:
        self._tried = (self._tried + 1) % len(self._apis)
        self._send()

    def _send(self) -> None:
        name = f"{self._plug.name} register"
        self._task = self._group.create_task(self._register(self._lifecycle.attempt, self._api), name=name)

    def _expect(self) -> None:
        self._start(STREAM_DUE)

    def _wait(self) -> None:
        self._forget()
        self._start(self._backoff.delay(self._now(), listening=self._listening))

    def _drain(self) -> None:
        self._log.info("its options changed, so it is registered anew")
        self._plug.end_streams()
        self._listening = True
        self._wait()

    def _forget(self) -> None:
        """Nothing of the last attempt matters any more: not its RPC, not its timer."""
        self._stop_timer()
        if self._task is not None and self._lifecycle.state is not State.SERVING:
            self._task.cancel()

    def _start(self, seconds: float) -> None:
        self._stop_timer()
        attempt = self._lifecycle.attempt
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, lambda: self._expired(attempt))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self, attempt: int) -> None:
        if self._lifecycle.state is State.EXPECTING:
            self._listening = True
            self._complain(f"the kubelet accepted the registration, but opened no stream within {STREAM_DUE:g} s")
        self._feed(Event.TIMER, attempt)

    async def _register(self, attempt: int, api: Api) -> None:
        """One Register; its result is an event."""
        try:
            self._plug.speak(api)
            options = self._plug.options()
            registration = Registration(self._plug.name, await self._plug.link(), options)
            self._registered = options
            await self._client.register(api, registration)
        except ApiRefused as error:
            self._log.debug("the kubelet refused the API: %s", error, extra={"api": api.name})
            self._listening = True
            self._result(Event.API_REFUSED, attempt)
        except (GatewayError, OSError) as error:
            self._listening = not (isinstance(error, RegisterFailed) and not error.listening)
            if self._lifecycle.attempt == attempt:
                self._complain(f"registering failed: {error}")
            self._result(Event.FAILED, attempt)
        except Exception:
            self._log.exception("a bug: registering failed", extra={"api": api.name})
            self._listening = True
            self._result(Event.FAILED, attempt)
        else:
            self._log.info("registered", extra={"api": api.name})
            self._result(Event.ACCEPTED, attempt)

    def _result(self, event: Event, attempt: int) -> None:
        self._task = None
        self._feed(event, attempt)

    def _complain(self, text: str) -> None:
        """Once, until a stream opens or the text changes: a stale kubelet.sock may refuse for days."""
        starting = not self._listening and self._now() - self._backoff.appeared < 1
        level = logging.DEBUG if text == self._complaint or starting else logging.WARNING
        self._complaint = self._complaint if starting else text
        self._log.log(level, "%s", text, extra={"api": self._api.name})

    @property
    def _api(self) -> Api:
        return self._apis[self._tried]

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


_ACTIONS = {
    Action.NOTHING: Registrar._nothing,  # noqa: SLF001  the class's own table
    Action.OFFER: Registrar._offer,  # noqa: SLF001
    Action.NEXT_API: Registrar._next_api,  # noqa: SLF001
    Action.EXPECT: Registrar._expect,  # noqa: SLF001
    Action.WAIT: Registrar._wait,  # noqa: SLF001
    Action.DRAIN: Registrar._drain,  # noqa: SLF001
    Action.FORGET: Registrar._forget,  # noqa: SLF001
    Action.HALT: Registrar._forget,  # noqa: SLF001
}
