"""What systemd is told: over a real socket, by the parts and by the real process."""

import asyncio
import contextlib
import os
import socket
import time

import pytest

from dpgateway.daemon.systemd import Notifier
from dpgateway.kit.observable import Signal
from dpgateway.status import Report
from tests.support.gateway import Gateway
from tests.support.time import advance, in_virtual_time
from tests.support.waiting import until

DEVICES = {"name": "example.com/thing", "driver": "simulated", "options": {"count": 2}}
HANGING = {
    "name": "example.com/slow",
    "driver": "simulated",
    "timeouts": {"list": "300ms"},
    "options": {"faults": [{"call": "list", "hang": True}]},
}
ABSENT = {"name": "example.com/absent", "driver": "absent"}


class Systemd:
    """Its end of the socket; ``heard`` has each line once, in order."""

    def __init__(self, address):
        self.address = address
        self.heard = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)

    async def hears(self, line):
        async with asyncio.timeout(60):
            while line not in self.heard:
                await self.hear()

    async def hear(self):
        text = await asyncio.get_running_loop().sock_recv(self._socket, 4096)
        self.heard += text.decode().split("\n")

    def hears_at_once(self):
        return self._socket.recv(4096).decode().split("\n")

    def close(self):
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request, short_path):
    address = str(short_path / "notify") if request.param == "path" else f"@dpgateway-{short_path.parent.name}"
    systemd = Systemd(address)
    yield systemd
    systemd.close()


def notifier_of(address, **environment):
    notifier = Notifier.take({"NOTIFY_SOCKET": address, **environment})
    assert notifier is not None
    return notifier


class TestNotifier:
    def test_without_systemd_there_is_nobody_to_tell(self):
        assert Notifier.take({}) is None
        assert Notifier.take({"NOTIFY_SOCKET": "vsock:2:1"}) is None

    def test_the_variables_are_not_for_children(self, systemd):
        environment = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1", "HOME": "/"}
        notifier = Notifier.take(environment)
        assert notifier is not None
        notifier.close()
        assert environment == {"HOME": "/"}

    async def test_each_thing_is_told_when_it_changes(self, systemd):
        notifier = notifier_of(systemd.address)
        await told(notifier, systemd)
        assert systemd.heard == ["STATUS=a", "STATUS=b", "READY=1"]

    @in_virtual_time
    async def test_once_it_is_ready_it_looks_when_something_has_changed(self, short_path):
        systemd, changed, texts, looks = Systemd(str(short_path / "notify")), Signal(), ["a"], []

        def look():
            looks.append(texts[-1])
            return Report(ready=True, text=texts[-1])

        notifier = notifier_of(systemd.address)
        follow = asyncio.create_task(notifier.follow(look, changed))
        await advance(100)
        assert len(looks) <= 5
        texts.append("b")
        looks.clear()
        for _ in range(3):
            changed.notify()
            await advance(0.01)
        await advance(1)
        assert looks == ["b"]
        follow.cancel()
        notifier.close()
        for told in (["STATUS=a"], ["READY=1"], ["STATUS=b"]):
            assert systemd.hears_at_once() == told
        systemd.close()

    @pytest.mark.parametrize("pid", ["", str(os.getpid())], ids=["any process", "this process"])
    async def test_the_watchdog_hears_of_us_twice_in_its_time(self, systemd, pid):
        notifier = notifier_of(systemd.address, WATCHDOG_USEC="20000", WATCHDOG_PID=pid)
        reassure = asyncio.create_task(notifier.reassure(Threads().works))
        async with asyncio.timeout(60):
            while systemd.heard.count("WATCHDOG=1") < 3:
                await systemd.hear()
        reassure.cancel()
        notifier.close()

    @pytest.mark.parametrize("failure", [None, OSError("no thread is left")], ids=["they hang", "they fail"])
    async def test_the_watchdog_hears_nothing_while_the_workers_do_not_answer(self, systemd, failure, caplog):
        notifier = notifier_of(systemd.address, WATCHDOG_USEC="20000")
        reassure = asyncio.create_task(notifier.reassure(Threads(failure).fail))
        await until(lambda: len(caplog.messages) >= 2)
        reassure.cancel()
        notifier.send("STATUS=a")
        notifier.close()
        assert systemd.hears_at_once() == ["STATUS=a"]
        assert caplog.messages[0].startswith("systemd isn't told that the gateway works, because it may not: ")

    def test_before_the_first_ready_a_reload_is_part_of_the_start(self, systemd):
        notifier = notifier_of(systemd.address)
        with notifier.reloading():
            pass
        notifier.send("STATUS=a")
        notifier.close()
        assert systemd.hears_at_once() == ["STATUS=a"]

    async def test_the_watchdog_of_another_process_is_not_ours(self, systemd):
        notifier = notifier_of(systemd.address, WATCHDOG_USEC="1", WATCHDOG_PID="1")
        await notifier.reassure(Threads().works)
        notifier.send("STATUS=a")
        assert systemd.hears_at_once() == ["STATUS=a"]
        notifier.close()

    @in_virtual_time
    async def test_a_systemd_that_is_busy_hears_it_later(self, short_path):
        """It ends a service whose READY=1 it has never heard. With many services that start its queue may be full."""
        systemd, changed = Systemd(str(short_path / "notify")), Signal()
        notifier = notifier_of(systemd.address)

        def fill():
            with contextlib.suppress(BlockingIOError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
                other.setblocking(False)
                while True:
                    other.sendto(b"STATUS=another service", systemd.address)

        def empty():
            heard = []
            with contextlib.suppress(BlockingIOError):
                while True:
                    heard += systemd.hears_at_once()
            return [line for line in heard if line != "STATUS=another service"]

        fill()
        follow = asyncio.create_task(notifier.follow(lambda: Report(ready=True, text="a"), changed))
        await advance(1)
        assert empty() == []
        await advance(1)
        assert empty() == ["STATUS=a", "READY=1"]

        with notifier.reloading():
            fill()
        empty()
        await advance(60)
        assert empty() == ["READY=1"]
        follow.cancel()
        notifier.close()
        systemd.close()

    def test_a_systemd_that_is_gone_costs_nothing(self, systemd):
        notifier = notifier_of(systemd.address)
        systemd.close()
        notifier.send("READY=1")
        notifier.close()


class Threads:
    """The gateway's workers."""

    def __init__(self, failure=None):
        self.failure = failure

    async def works(self):
        pass

    async def fail(self):
        if self.failure is not None:
            raise self.failure
        await asyncio.Event().wait()


async def told(notifier, systemd):
    """What a start of three looks tells."""
    looks = iter([Report(ready=False, text="a"), Report(ready=False, text="a")])
    follow = asyncio.create_task(notifier.follow(lambda: next(looks, Report(ready=True, text="b")), Signal()))
    await systemd.hears("READY=1")
    follow.cancel()
    notifier.close()


class TestProcess:
    @pytest.fixture
    def systemd(self, short_path):
        systemd = Systemd(str(short_path / "notify"))
        yield systemd
        systemd.close()

    @pytest.fixture
    async def process(self, short_path, systemd):
        async with Gateway(short_path, short_path / "device-plugins") as process:
            process.device_plugins_dir.mkdir()
            process.environment["NOTIFY_SOCKET"] = systemd.address
            yield process

    async def test_it_tells_of_its_sockets_of_each_configuration_and_of_its_end(self, process, systemd):
        await process.start(DEVICES)
        await systemd.hears("READY=1")
        assert sum(name.endswith(".sock") for name in process.names()) == 1
        assert "STATUS=1 resource, waiting for a kubelet" in systemd.heard
        systemd.heard.clear()
        process.reload(DEVICES, {**DEVICES, "name": "example.com/other"})
        await systemd.hears("READY=1")
        began = next(line for line in systemd.heard if line.startswith("MONOTONIC_USEC="))
        assert systemd.heard[systemd.heard.index(began) - 1] == "RELOADING=1"
        assert 0 <= time.monotonic() - int(began.partition("=")[2]) / 1e6 < 60
        await systemd.hears("STATUS=2 resources, waiting for a kubelet")
        process.reload({**DEVICES, "shares": 0})
        await systemd.hears(
            "STATUS=2 resources, waiting for a kubelet, the configuration is refused, and the old one goes on"
        )
        process.reload(DEVICES)
        await systemd.hears("STATUS=1 resource, waiting for a kubelet")
        assert await process.end() == 0
        await systemd.hears("STOPPING=1")

    async def test_without_the_kubelets_directory_it_is_ready_too_and_tells_the_watchdog(self, process, systemd):
        process.device_plugins_dir.rmdir()
        process.environment["WATCHDOG_USEC"] = "100000"
        await process.start(DEVICES)
        await systemd.hears("READY=1")
        systemd.heard.clear()
        await systemd.hears("WATCHDOG=1")

    async def test_a_resource_that_fails_does_not_hold_up_the_others(self, process, systemd):
        await process.start(DEVICES, ABSENT)
        await systemd.hears("READY=1")
        assert systemd.heard[-2] == "STATUS=2 resources, waiting for a kubelet, 1 failed: example.com/absent"

    async def test_a_driver_that_hangs_holds_up_the_start_until_its_deadline(self, process, systemd):
        await process.start(HANGING)
        await systemd.hears("READY=1")
        assert systemd.heard[-2] == "STATUS=1 resource, waiting for a kubelet, 1 failed: example.com/slow"
