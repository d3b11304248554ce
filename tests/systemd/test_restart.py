"""The service under a real systemd: what a kubelet notices of its restart, and of a new program that doesn't work."""

import asyncio
import contextlib
import re
import stat
from collections.abc import AsyncIterator, Iterator

import pytest

from dpgateway_simulator import Kubelet
from tests.end_to_end.awkward import install
from tests.support.containerd import containerd
from tests.support.waiting import until
from tests.systemd.machine import ROOT, Machine

R = "example.com/thing"
RESOURCE = {"name": R, "driver": "simulated", "options": {"count": 4}}
SERVICE, NEXT = "dpgateway@node", "dpgateway@node-next"


@pytest.fixture
async def machine(request: pytest.FixtureRequest) -> AsyncIterator[Machine]:
    """The service serves. The parameter, if there is one: a drop-in."""
    async with Machine(getattr(request, "param", "")) as machine:
        machine.configure(RESOURCE)
        await machine.done("start", SERVICE)
        yield machine


@pytest.fixture
async def kubelet(machine: Machine) -> AsyncIterator[Kubelet]:
    """It has the devices."""
    async with Kubelet("1.37", machine.device_plugins) as kubelet:
        await kubelet.wait_for(lambda: kubelet.counts(R) == (4, 4), 60)
        yield kubelet


@contextlib.contextmanager
def used(kubelet: Kubelet) -> Iterator[list[object]]:
    """Whatever else than four devices the kubelet counts meanwhile, or Allocate answers."""
    wrong: list[object] = []

    async def look() -> None:
        while True:
            if (counts := kubelet.counts(R)) != (4, 4):
                wrong.append(counts)
            try:
                await kubelet.allocate(R, ["node-0"])
            except Exception as error:
                wrong.append(error)
            await asyncio.sleep(0.005)

    looking = asyncio.create_task(look())
    try:
        yield wrong
    finally:
        looking.cancel()


async def main_pid(machine: Machine, unit: str = SERVICE) -> str:
    return await machine.done("show", "--property=MainPID", "--value", unit)


async def ended(machine: Machine, unit: str) -> bool:
    return await machine.state(unit) == "inactive"


async def test_a_restart_is_unnoticed(machine: Machine, kubelet: Kubelet) -> None:
    before = await main_pid(machine)
    with used(kubelet) as wrong:
        await machine.done("restart", SERVICE)
        assert await main_pid(machine) not in {before, "0"}
        assert await machine.state(SERVICE) == "active"
        await until(lambda: ended(machine, NEXT))
    assert not wrong, machine.log()
    # Each says so on a thread of its own while the other one ends already.
    await until(lambda: machine.log().count("took over from another gateway") == 2)


async def test_a_stop_is_a_stop(machine: Machine, kubelet: Kubelet) -> None:
    await machine.done("stop", SERVICE)
    await kubelet.wait_for(lambda: kubelet.counts(R)[1] == 0)
    assert (await machine.state(SERVICE), await machine.state(NEXT)) == ("inactive", "inactive")
    assert not list((machine.device_plugins / "dpgateway").iterdir())
    assert "took over" not in machine.log()


async def test_a_restart_with_a_wrong_configuration_serves_the_last_good_one(
    machine: Machine, kubelet: Kubelet
) -> None:
    with used(kubelet) as wrong:
        machine.configure({**RESOURCE, "sharse": 2})
        await machine.done("restart", SERVICE)
        assert await machine.state(SERVICE) == "active"
        await until(lambda: ended(machine, NEXT))
    assert not wrong, machine.log()
    await until(lambda: machine.log().count("the configuration is refused, so the last good one") == 2)


@pytest.mark.parametrize("machine", ["[Service]\nEnvironment=DPGATEWAY_STRICT_CONFIG=true\n"], indirect=True)
async def test_a_new_program_that_does_not_start_is_noticed_before_the_old_one_ends(
    machine: Machine, kubelet: Kubelet
) -> None:
    before = await main_pid(machine)
    with used(kubelet) as wrong:
        machine.configure({**RESOURCE, "sharse": 2})
        code, said = await machine.systemctl("start", NEXT)
        assert (code, await machine.state(NEXT)) == (1, "failed"), said
        assert await main_pid(machine) == before
    assert not wrong, machine.log()


async def test_a_gateway_that_was_killed_is_started_again(machine: Machine, kubelet: Kubelet) -> None:
    since = len(kubelet.events)
    await machine.done("kill", "--signal=KILL", SERVICE)
    await kubelet.wait_for_event("stream ended", since, resource=R)  # the next one may be there by now
    await kubelet.wait_for(lambda: kubelet.counts(R) == (4, 4), 60)
    assert await until(lambda: main_pid(machine)) != "0"


async def test_systemd_kills_a_gateway_whose_driver_holds_the_interpreter() -> None:
    """TimeoutStopSec= after SIGTERM, because no Python code can run."""
    holds = "ctypes.PyDLL(None).system(b'echo the driver holds the lock >&2; exec sleep 60')"
    async with Machine("[Service]\nEnvironment=PYTHONPATH=/var/lib/kubelet/drivers\n") as machine:
        (drivers := machine.device_plugins.with_name("drivers")).mkdir()
        install(drivers)
        machine.configure({"name": R, "driver": "awkward", "options": {"runs": holds}})
        await machine.done("start", "--no-block", SERVICE)
        await until(lambda: "the driver holds the lock" in machine.log())
        await machine.done("stop", SERVICE)
        assert await machine.done("show", "--property=Result", "--value", SERVICE) == "timeout"


async def test_with_a_drop_in_the_gateway_writes_cdi_specs_which_a_restart_leaves_alone() -> None:
    page = (ROOT / "docs/how-to/use-cdi.md").read_text()
    (drop_in,) = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    async with Machine(drop_in) as machine:
        folder = machine.path("/run/cdi")
        folder.mkdir(mode=0o755)  # as systemd-tmpfiles does it
        machine.configure({**RESOURCE, "cdi": "always", "env": {"GIVEN": "by a spec"}})
        runtime = machine.path("/run/containerd/containerd.sock")
        runtime.parent.mkdir()
        await machine.done("start", SERVICE)
        async with containerd(runtime), Kubelet("1.37", machine.device_plugins) as kubelet:
            await kubelet.wait_for(lambda: kubelet.counts(R) == (4, 4), 60)
            assert (await kubelet.admit("pod", {"c": {R: 1}}))["ok"]
            (spec,) = folder.glob("dpgateway-*.json")
            before = spec.stat().st_ino, spec.stat().st_mtime_ns
            await machine.done("restart", SERVICE)
            await until(lambda: ended(machine, NEXT))
            assert "GIVEN=by a spec" in spec.read_text()
            assert (spec.stat().st_ino, spec.stat().st_mtime_ns) == before
            assert stat.S_IMODE(folder.stat().st_mode) == 0o755
