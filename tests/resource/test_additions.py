"""What the configuration says wins over the driver, and what it replaced is named."""

import dataclasses

from dpgateway.cdi import spec
from dpgateway.cdi.expansion import Resolved, expand
from dpgateway.cdi.own import OwnSpecs
from dpgateway.model import Allocation, DeviceNode, Mount
from dpgateway.resource.additions import Additions, add
from tests.support.logs import complaint

DRIVERS = Allocation(
    env={"OURS": "driver", "SHARED": "driver", "SAME": "1"},
    device_nodes=(DeviceNode("/dev/a"), DeviceNode("/dev/b", "/b")),
    mounts=(Mount("/driver", "/shared"), Mount("/driver", "/ours"), Mount("/same", "/same")),
    annotations={"ours": "driver", "shared": "driver", "same": "1"},
    cdi_devices=("v/c=a",),
)
CONFIGURED = Additions(
    env={"SHARED": "config", "SAME": "1", "NEW": ""},
    annotations={"shared": "config", "same": "1", "new": ""},
    mounts=(Mount("/config", "/shared", read_only=False), Mount("/config", "/b"), Mount("/same", "/same")),
)


def test_both_are_merged_and_the_configuration_wins():
    merged, _ = add(DRIVERS, CONFIGURED)
    assert merged == Allocation(
        env={"OURS": "driver", "SHARED": "config", "SAME": "1", "NEW": ""},
        device_nodes=(DeviceNode("/dev/a"),),
        mounts=(Mount("/driver", "/ours"), *CONFIGURED.mounts),
        annotations={"ours": "driver", "shared": "config", "same": "1", "new": ""},
        cdi_devices=("v/c=a",),
    )


def test_what_was_replaced_is_named_and_what_is_the_same_is_not():
    _, replaced = add(DRIVERS, CONFIGURED)
    assert replaced == ("env SHARED", "annotation shared", "mount /shared", "device node /b")


def test_a_place_has_many_spellings():
    drivers = Allocation(device_nodes=(DeviceNode("/dev/a", "//dev/./a"),), mounts=(Mount("/d", "/data/"),))
    configured = (Mount("/config", "/dev/a"), Mount("/config", "/data"))
    merged, replaced = add(drivers, Additions(mounts=configured))
    assert merged == Allocation(mounts=configured)
    assert replaced == ("mount /data/", "device node //dev/./a")


def test_without_additions_nothing_changes():
    assert add(DRIVERS, Additions()) == (DRIVERS, ())


@dataclasses.dataclass(frozen=True, slots=True)
class Wider(Allocation):
    """An allocation with a field that nobody knows."""

    net_devices: tuple[str, ...] = ()


def test_an_addition_keeps_unknown_fields():
    given = Wider(env={"A": "1"}, net_devices=("eth1",))
    merged, _ = add(given, Additions(env={"B": "2"}, annotations={"a": "1"}, mounts=(Mount("/m", "/m"),)))
    assert merged == Wider({"A": "1", "B": "2"}, (), (Mount("/m", "/m"),), {"a": "1"}, net_devices=("eth1",))


def test_an_expansion_keeps_unknown_fields():
    meant = Resolved("v/c=a", "/etc/cdi/v.json", spec.Edits(env=("B=2",)), spec.Edits())
    given = Wider({"A": "1"}, annotations={"a": "1"}, cdi_devices=("v/c=a",), net_devices=("eth1",))
    expected = Wider({"A": "1", "B": "2"}, annotations={"a": "1"}, net_devices=("eth1",))
    assert expand(given, [meant], lambda path: None) == expected


def test_a_written_spec_keeps_unknown_fields(tmp_path):
    specs = OwnSpecs(tmp_path / "state", tmp_path / "cdi", tmp_path / "device-plugins", complaint([]))
    given = Wider({"A": "1"}, annotations={"a": "1"}, net_devices=("eth1",))
    written = specs.write("example.com/thing", ("a",), given)
    assert written == Wider(annotations={"a": "1"}, cdi_devices=written.cdi_devices, net_devices=("eth1",))
    assert len(written.cdi_devices) == 1
