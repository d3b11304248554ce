"""CDI names reach a container by name where kubelet and runtime know CDI, else as what they stand for."""

import itertools
import threading
from typing import get_args

import pytest

from dpgateway.cdi.directories import SpecDirectories
from dpgateway.config.values import CdiKind
from dpgateway.deviceplugin.cdi import CdiDelivery
from dpgateway.errors import CdiError
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation, DeviceNode
from dpgateway.node.runtime import CdiSupport
from tests.support.logs import complaint
from tests.support.specs import asked, cdi, of, own, write
from tests.support.specs import known as runtime_known

NAMED = Allocation(env={"A": "1"}, cdi_devices=("vendor.example/gpu=0",))
EXPANDED = Allocation({"A": "1"}, (DeviceNode("/dev/null", "/dev/gpu", "rwm"),))


@pytest.fixture
def names(tmp_path):
    return cdi(tmp_path / "cdi")


@pytest.fixture
def write_spec(tmp_path):
    def write_spec(**edits):
        node = {"path": "/dev/gpu", "hostPath": "/dev/null"}
        write(tmp_path / "cdi" / "a.json", of({"0": {"deviceNodes": [node], **edits}}))

    return write_spec


def test_names_are_given_only_where_they_arrive():
    wanted: tuple[CdiKind, ...] = get_args(CdiKind)
    known = True, None, False
    found = [
        (kind, kubelet, runtime)
        for kind, kubelet, runtime in itertools.product(wanted, known, known)
        if not asked(kind, kubelet=kubelet).why_expanded(CdiSupport(runtime), ())
    ]
    assert found == [("auto", True, True), ("always", True, True)]


@pytest.mark.parametrize("kubelet", [False, None, True])
async def test_names_are_expanded_where_they_may_be_lost(names, write_spec, kubelet):
    write_spec()
    assert await names.deliver(NAMED, asked("auto", kubelet=kubelet)) == (EXPANDED, "")


@pytest.mark.parametrize("wanted", ["auto", "always"])
@pytest.mark.parametrize(
    ("kubelet", "runtime", "why"),
    [
        (True, None, "it isn't known whether this container runtime knows CDI: tell the gateway which runtime"),
        (None, True, "it isn't known whether this kubelet knows CDI"),
        (False, None, "this kubelet doesn't know CDI"),
        (True, False, "this container runtime doesn't know CDI"),
    ],
)
async def test_inexpressible_names_are_refused(  # noqa: PLR0917
    tmp_path, write_spec, wanted, kubelet, runtime, why
):
    write_spec(hooks=[{"hookName": "poststop", "path": "/bin/h"}])
    names = cdi(tmp_path / "cdi", runtime=runtime)
    with pytest.raises(CdiError, match=rf"gpu=0 .*: its hook poststop /bin/h can't be expanded; .* because {why}"):
        await names.deliver(NAMED, asked(wanted, kubelet=kubelet))
    assert own(tmp_path / "cdi").all() == ()


@pytest.mark.parametrize(("runtime", "found"), [(True, NAMED), (None, EXPANDED), (False, EXPANDED)])
async def test_the_runtime_decides_behind_a_cdi_kubelet(tmp_path, write_spec, runtime, found):
    write_spec()
    names = cdi(tmp_path / "cdi", runtime=runtime)
    assert await names.deliver(NAMED, asked("auto", kubelet=True)) == (found, "")
    assert await names.deliver(NAMED, asked("auto", kubelet=False)) == (EXPANDED, "")
    assert await names.deliver(NAMED, asked("never", kubelet=True)) == (EXPANDED, "")


@pytest.mark.parametrize("wanted", ["auto", "never"])
async def test_a_name_that_stands_for_nothing_is_refused(names, wanted):
    with pytest.raises(CdiError, match=r"no spec has the CDI device vendor\.example/gpu=0; looked in /"):
        await names.deliver(NAMED, asked(wanted, kubelet=True))


PLAIN = Allocation({"A": "1"}, (DeviceNode("/dev/null"),), annotations={"n": "1"})


async def test_always_gives_names_that_arrive(tmp_path):
    given, doubt = await cdi(tmp_path, runtime=True).deliver(PLAIN, asked("always", kubelet=True))
    (written,) = own(tmp_path).all()
    assert given == Allocation(annotations={"n": "1"}, cdi_devices=(written.given.name,))
    assert (written.given.resource, written.given.ids) == ("example.com/thing", ("a",))
    assert written.spec.exists()
    assert not doubt


@pytest.mark.parametrize(
    ("kubelet", "runtime", "why"),
    [
        (False, True, "this kubelet doesn't know CDI"),
        (None, False, "it isn't known whether this kubelet knows CDI"),
        (True, False, "this container runtime doesn't know CDI"),
        (True, None, "it isn't known whether this container runtime knows CDI: tell the gateway which runtime this is"),
    ],
)
async def test_always_expands_names_that_may_be_lost(tmp_path, kubelet, runtime, why):
    given, told = await cdi(tmp_path, runtime=runtime).deliver(PLAIN, asked("always", kubelet=kubelet))
    assert given == PLAIN
    assert f"because {why}" in told
    assert own(tmp_path).all() == ()


async def test_specs_the_runtime_cannot_see_are_expanded(tmp_path, write_spec):
    write_spec()
    elsewhere = tmp_path / "elsewhere"
    names = cdi(tmp_path / "cdi", runtime=True, read=[elsewhere])
    assert await names.deliver(NAMED, asked("auto", kubelet=True)) == (EXPANDED, "")
    given, told = await names.deliver(PLAIN, asked("always", kubelet=True))
    assert (given, own(tmp_path / "cdi").all()) == (PLAIN, ())
    assert told.endswith(f"because this container runtime reads no specs in {tmp_path}/cdi")
    both = cdi(tmp_path / "cdi", elsewhere, runtime=True, read=[elsewhere])
    given, told = await both.deliver(NAMED, asked("always", kubelet=True))
    assert (given, told.endswith(f"reads no specs in {tmp_path}/cdi")) == (EXPANDED, True)


async def test_always_refuses_unwritable_specs_and_unknown_names(tmp_path):
    write(tmp_path / "cdi" / "state", "")
    with pytest.raises(CdiError, match=r"the CDI spec .* can't be written"):
        await cdi(tmp_path / "cdi", runtime=True).deliver(PLAIN, asked("always", kubelet=True))
    with pytest.raises(CdiError, match="no spec has the CDI device"):
        await cdi(tmp_path).deliver(NAMED, asked("always", kubelet=True))
    assert own(tmp_path).all() == ()


@pytest.mark.parametrize("wanted", ["auto", "always"])
async def test_a_hung_disk_costs_its_deadline(wanted):
    """It is read, or written, too."""
    end = threading.Event()

    class Hangs(SpecDirectories):
        def resolve(self, names):
            end.wait()
            return ()

    names = CdiDelivery(Hangs((), complaint([])), own(), Threads(), runtime_known(None), 0.02)
    with pytest.raises(CdiError, match=r"haven't been read for 0\.02 s: a disk hangs, or there are too many"):
        await names.deliver(NAMED, asked(wanted, kubelet=True))
    end.set()
