"""Registers one resource with the kubelet, and again whenever the lifecycle table requires it.

Theory of operation
    - The normal path is READY -> Register -> EXPECTING -> a stream -> SERVING (``lifecycle``).
    - Events are method calls, the result of a Register, and the timer. :meth:`Registrar._feed` gives each to the table
      and executes the action, which never awaits: an event that it causes comes after it.
    - An attempt is one Register, then its timer: ``_task`` and ``_timer``, never both at once, and ``_tried``. The
      lifecycle numbers attempts and drops the results of older ones.
    - ``_streams`` are the present kubelet's. A new kubelet disowns the older one's: they are forgotten, not ended.
    - ``_registered`` are the options of the last Register; if the resource's options change, it registers again.
    - ``_listening`` is whether kubelet.sock accepted a connection at the last attempt; if it didn't, the kubelet may
      just be starting, and backoff and log are patient.
    - ``_inherited``, an API's name, and ``_seamless`` come from the gateway that handed the resource over.
    - ``record`` is the state that the rest of the gateway sees.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field
from functools import partial

from dpgateway.deviceplugin.api import Api
from dpgateway.deviceplugin.calls import KubeletCalls
from dpgateway.deviceplugin.registration.client import ApiRefused, KubeletClient, RegisterFailed
from dpgateway.deviceplugin.registration.lifecycle import Action, Backoff, Lifecycle, State, Trigger
from dpgateway.deviceplugin.registration.record import RegistrationRecord
from dpgateway.deviceplugin.server.endpoint import Endpoint
from dpgateway.deviceplugin.server.handlers import StreamCallbacks
from dpgateway.deviceplugin.values import Options, Registration
from dpgateway.errors import GatewayError
from dpgateway.node.incarnation import Change

CHANGING = 0.05
"""Seconds after which a timer that expired while another kubelet came expires again."""
STREAM_DUE = 15.0
"""Timeout in seconds from Register's success to ListAndWatch: before 1.25 a kubelet answers first, then dials for up to
10 s (pkg/kubelet/cm/devicemanager/manager.go, addEndpoint)."""


@dataclass(eq=False)
class Stream:
    """One ListAndWatch of the present kubelet."""

    opened: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    listed: bool = False
    """Whether its first list was sent."""


class Registrar:
    """Keeps one resource registered. Used from the event loop."""

    def __init__(
        self,
        calls: KubeletCalls,
        endpoint: Endpoint,
        client: KubeletClient,
        group: asyncio.TaskGroup,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._calls, self._endpoint, self._client, self._group, self._log = calls, endpoint, client, group, log
        self._apis = client.apis
        self._lifecycle = Lifecycle(len(self._apis))
        self.record = RegistrationRecord(log)
        self.standing = self.record.standing
        self._now, self._backoff = asyncio.get_running_loop().time, Backoff(random.random)
        self._streams: set[Stream] = set()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._listening = False
        self._registered: Options | None = None
        self._tried = 0
        """Index of the API of the last Register."""
        self._inherited = ""
        self._seamless = False

    @property
    def state(self) -> State:
        return self._lifecycle.state

    @property
    def streaming(self) -> bool:
        """Whether a stream of this kubelet is open."""
        return bool(self._streams)

    @property
    def registering(self) -> bool:
        """Whether a Register is in flight, or has succeeded and its stream is due."""
        return self._lifecycle.state in {State.REGISTERING, State.EXPECTING}

    # events

    def ready(self, api: str = "", *, seamless: bool = False) -> None:
        """The resource is served, and its list and holdings are known.

        ``api``: the name of the API in which the gateway before this one registered it. ``seamless``: that gateway's
        stream is still open.
        """
        self._inherited, self._seamless = api, seamless
        self._feed(Trigger.READY)

    def kubelet(self, change: Change) -> None:
        """kubelet.sock has changed. A new kubelet disowns the older one's streams."""
        if change is Change.NEW:
            self._streams.clear()
            self._inherited = ""
            self._backoff.new_kubelet(self._now())
        if change in _KUBELET:
            self._feed(_KUBELET[change])

    def stream_opened(self, agent: str = "") -> StreamCallbacks:
        """The kubelet with this user agent has opened a stream."""
        self._calls.remember_agent(agent)
        self._endpoint.tidy()
        # Only the first stream after a handover overlaps with the older gateway's.
        stream, seamless = Stream(), self._seamless
        self._seamless = False
        self._streams.add(stream)
        self.record.complaint_over()
        self._feed(Trigger.STREAM_OPEN)
        # The table ignores REDO until a stream is open.
        self.options_changed()
        return StreamCallbacks(partial(self._stream_listed, stream), partial(self._stream_closed, stream), seamless)

    def _stream_listed(self, stream: Stream) -> None:
        stream.listed = True
        self._note()

    def _stream_closed(self, stream: Stream) -> None:
        if stream not in self._streams:
            return  # disowned
        self._streams.remove(stream)
        if not self._streams:
            self._backoff.stream_ended(self._now() - stream.opened)
            self._listening = True
            self._log.info("the kubelet's last stream ended", extra={"api": self._api.name})
            self._feed(Trigger.LAST_STREAM_END)
        else:
            self._note()

    def options_changed(self) -> None:
        """The resource's options may differ from the registered ones."""
        if self._registered is not None and self._registered != self._calls.options():
            self._feed(Trigger.REDO)

    def stop(self) -> None:
        self._feed(Trigger.STOP)

    # actions

    def _feed(self, trigger: Trigger, attempt: int | None = None) -> None:
        """Feeds the table, and executes its action."""
        action = self._lifecycle.feed(trigger, attempt)
        self._log.debug("%s: %s, %s", trigger.value, self._lifecycle.state.value, action.value)

        # Every action replaces the running timer, and some give up the Register in flight: there are never two.
        if action is not Action.NOTHING and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if action in _GIVING_UP and self._task is not None:
            self._task.cancel()
            self._task = None

        match action:
            case Action.REGISTER | Action.NEXT_API:
                # A new attempt starts with the API that this kubelet last accepted from any resource, or from the
                # gateway before this one; a refused API is followed by the next.
                apis = [api.name for api in self._apis]
                last = self._client.accepted.name if self._client.accepted is not None else self._inherited
                first = apis.index(last) if last in apis else 0
                self._tried = first if action is Action.REGISTER else (self._tried + 1) % len(apis)
                registering = self._register(self._lifecycle.attempt, self._api)
                self._task = self._group.create_task(registering, name=f"{self._calls.name} register")
            case Action.EXPECT:
                text = f"the kubelet accepted the registration, but opened no stream within {STREAM_DUE:g} s"
                self._start(STREAM_DUE, text)
            case Action.SERVE:
                self._log.debug("the kubelet listens", extra={"api": self._api.name})
            case Action.DRAIN:
                self._log.info("the options changed, so the resource is registered again")
                self._endpoint.handlers.end_streams()
                self._listening = True
                self._start(self._backoff.delay(self._now(), listening=True))
            case Action.WAIT:
                self._start(self._backoff.delay(self._now(), listening=self._listening))
        self._note()

    def _note(self) -> None:
        self.record.note(self._lifecycle.state, self._api.name, [stream.listed for stream in self._streams])

    def _start(self, seconds: float, complaint: str = "") -> None:
        """Starts the timer. ``complaint``: the fault, if it expires; kubelet.sock accepts connections in that case."""
        attempt = self._lifecycle.attempt

        def expired() -> None:
            # A new kubelet is an event of its own, as soon as its checkpoint has been read. Registering before that
            # would register twice, and calls of the first stream would end, or be answered in another API.
            if not complaint and self._client.changing():
                self._timer = asyncio.get_running_loop().call_later(CHANGING, expired)
                return
            if complaint:
                self._listening = True
                self._complain(complaint)
            self._feed(Trigger.TIMER, attempt)

        self._timer = asyncio.get_running_loop().call_later(seconds, expired)

    async def _register(self, attempt: int, api: Api) -> None:
        """Sends one Register, and feeds its result to the table."""
        trigger = Trigger.FAILED
        try:
            # Version and socket come before Register, within which kubelets from 1.25 on dial and call (#112395).
            self._calls.speak(api)
            options = self._calls.options()
            registration = Registration(self._calls.name, await self._endpoint.link(), options)
            self._registered = options
            await self._client.register(api, registration)
        except asyncio.CancelledError:
            self.record.count(api.name, "given_up")
            raise
        except ApiRefused as error:
            self._log.debug("the kubelet refused the API: %s", error, extra={"api": api.name})
            self._listening, trigger = True, Trigger.API_REFUSED
        except (GatewayError, OSError) as error:
            self._listening = not (isinstance(error, RegisterFailed) and not error.listening)
            if self._lifecycle.attempt == attempt:
                self._complain(f"registering failed: {error}")
        except Exception:
            self._log.exception("a bug: registering failed", extra={"api": api.name})
            self._listening = True
        else:
            self._log.info("registered", extra={"api": api.name})
            trigger = Trigger.ACCEPTED

        self.record.count(api.name, trigger.name.lower())
        # The action may cancel _task, which must not be this task by then.
        if asyncio.current_task() is self._task:
            self._task = None
        self._feed(trigger, attempt)

    def _complain(self, text: str) -> None:
        starting = not self._listening and self._now() - self._backoff.appeared < 1
        self.record.complain(text, self._api.name, starting=starting)

    @property
    def _api(self) -> Api:
        return self._apis[self._tried]


_KUBELET = {
    Change.NEW: Trigger.KUBELET_NEW,
    Change.GONE: Trigger.KUBELET_GONE,
    Change.BACK: Trigger.KUBELET_BACK,
}
_GIVING_UP = frozenset({Action.REGISTER, Action.WAIT, Action.DRAIN, Action.GIVE_UP})
