import select
import socket

import pytest

from dpgateway.sysfs import Uevent
from dpgateway.sysfs.uevents import Uevents


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (
            b"add@/devices/virtual/vc/vcs20\0ACTION=add\0DEVPATH=/devices/virtual/vc/vcs20\0SUBSYSTEM=vc\0SEQNUM=1\0",
            Uevent("add", "devices/virtual/vc/vcs20", "vc"),
        ),
        (b"x\0ACTION=unbind\0DEVPATH=/devices/a\xff\0", Uevent("unbind", "devices/a\udcff", "")),
        (b"libudev\0\xfe\xed\xca\xfe", None),
        (b"", None),
    ],
)
def test_a_message(message, event):
    assert Uevent.parse(message) == event


@pytest.fixture
def listening():
    events = Uevents()
    yield events
    events.close()


def test_the_kernels_own_messages(listening, change):
    change("null")
    expected = Uevent("change", "devices/virtual/mem/null", "mem")
    found: list[Uevent | None] = []
    while expected not in found:
        assert select.select([listening], [], [], 5)[0], f"expected {expected}, found {found}"
        found += listening.read()


def test_messages_that_were_lost_are_told_once(listening, change):
    """The queue is far smaller than what comes."""
    listening._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    for _ in range(100):
        change("null")
    listening._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    assert list(listening.read()).count(None) == 1
    assert None not in list(listening.read())


def test_only_the_kernel_is_believed(listening):
    """Root may send to the socket, as may others where the kernel lets them."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15) as other:
        other.sendto(b"add@/x\0ACTION=add\0DEVPATH=/x\0SUBSYSTEM=tty\0", (listening._socket.getsockname()[0], 0))
    assert select.select([listening], [], [], 5)[0]
    assert Uevent("add", "x", "tty") not in list(listening.read())
