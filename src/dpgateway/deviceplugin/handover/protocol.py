"""The protocol between two gateways while one hands a resource over to the other.

The older gateway listens at ``<device-plugins>/dpgateway/<hash>.next``, and the newer one dials: one connection per
resource. Each message is a packet of text (``kit.seqpacket``). An upgrade is a handover between two releases, so every
release sends the same bytes: never change a message.

    newer               older
    ask 1          ->                    or "ask 1 without healthy devices"
                   <-   take API, lock   with the lock's descriptor; API: the older one's registration
    serves         ->                    its socket is bound
                   <-   register         with the descriptors of streams that must outlive the older gateway
    listed         ->                    the kubelet has its list
                   <-   (end)            the older one's streams have ended
                   <-   back             at any time before the end: the newer one must let go

Theory of operation
    1. The newer gateway asks once its driver has listed and the holdings are known, so a gateway that hangs or can't
       load its driver never asks. One without a healthy device says so, and gets nothing from one that has any, because
       the kubelet would lose its devices.
    2. The older gateway waits until one gateway, which its addresses name (``kit.seqpacket``), has asked for all
       resources of the pool, and then for an idle moment: no call is unanswered, no device is being prepared or
       released, no Register waits for its stream. In that moment it parks the pool. From ``take`` to the end it decides
       nothing: calls wait, drivers get no releases, and the journal was written for the last time.
    3. After ``take`` both gateways hold the lock, so either one's end leaves it to the other. The newer one binds its
       socket, reads the journal, and ``serves`` within 2 s (50 ms more for each further resource of the pool). Once the
       whole pool is served, the older one is a proxy and forwards each call.
    4. At the next moment without a call the newer one may ``register``, one resource of the pool after the other,
       because concurrent Registers would wait for each other while the kubelet has no list of theirs. From ``register``
       on the older one sends nothing on its streams: a kubelet 1.37 would take it for the newer one's list.
    5. Once the last resource of the pool is ``listed``, the older gateway lets the whole pool go in one moment, all or
       none. It ends its streams, then the connection, and then waits for the lock.
    6. Only after the end does the newer one's driver get releases, and may a third gateway ask. Before that the older
       one could want the resource back, and give what is free to a container; and a kubelet 1.37 that loses one of
       three streams may call either of the other two.

    Until step 5 any failure takes the whole pool back: an unexpected message, a late message, or the newer gateway's
    end. If the older gateway ends meanwhile, it takes nothing back: the newer one has all locks, and goes on alone.
    After a failure the resource is neither asked for nor handed over until its HandoverBackoff is over.

Outcome if either gateway is killed after a message:

    take       the survivor has the lock, and serves
    serves     the older one serves on, and binds a new socket at its next Register; or the newer one registers
    register   the survivor registers
    listed     the older one registers again; or the newer one, already registered, goes on
"""

from __future__ import annotations

import asyncio
import random
import re

from dpgateway.kit.tasks import LONGEST_PAUSE, backoff

ASK, POOR = "ask 1", "ask 1 without healthy devices"
TAKE, REGISTER, BACK = "take", "register", "back"
SERVES, LISTED = "serves", "listed"

_ONE_CLIENT = (1, 47), (1, 81)
"""The grpc-go versions of kubelet 1.25, the first that keeps one client per resource, and of 1.37, the first after."""


def keeps_one_client(agent: str) -> bool:
    """Whether the end of an older stream ends the newer one, too, as in the kubelets 1.25 to 1.36 (kubernetes #121994).
    True if ``agent``, the kubelet's user agent, has no version.
    """
    match = re.match(r"grpc-go/(\d+)\.(\d+)", agent)
    return match is None or _ONE_CLIENT[0] <= (int(match[1]), int(match[2])) < _ONE_CLIENT[1]


class HandoverBackoff:
    """The backoff of one resource's handovers, to this gateway or from it. Used from the event loop.

    The pause is 1 s, doubling up to 60 s, plus up to a quarter of jitter, so that the resources of one gateway don't
    return in step.
    """

    def __init__(self) -> None:
        self._failures, self._due, self._why = 0, 0.0, ""

    def failed(self, why: str) -> bool:
        """Starts the next pause. Returns whether the cause is news for the log, unlike the last failure's."""
        self._failures += 1
        pause = backoff(self._failures, LONGEST_PAUSE) * (1 + random.random() / 4)  # noqa: S311  no secret
        self._due = asyncio.get_running_loop().time() + pause
        self._why, before = why, self._why
        return why != before

    def succeeded(self) -> None:
        self._failures, self._due, self._why = 0, 0.0, ""

    @property
    def due(self) -> bool:
        """Whether the pause is over."""
        return asyncio.get_running_loop().time() >= self._due

    async def pause(self) -> None:
        """Returns when it is over."""
        await asyncio.sleep(self._due - asyncio.get_running_loop().time())
