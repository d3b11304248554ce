"""What the configuration says wins over the driver, and what it replaced is named."""

import dataclasses

import pytest

from dpgateway.cdi import spec
from dpgateway.cdi.expansion import Resolved, expand
from dpgateway.cdi.own import OwnSpecs
from dpgateway.config.values import Shares
from dpgateway.model import Allocation, DeviceNode, Mount
from dpgateway.resource.additions import complete
from tests.support.logs import complaint
from tests.support.resources import configured

DRIVERS = Allocation(
    env={"OURS": "driver", "SHARED": "driver", "SAME": "1"},
    device_nodes=(DeviceNode("/dev/a"), DeviceNode("/dev/b", "/b")),
    mounts=(Mount("/driver", "/shared"), Mount("/driver", "/ours"), Mount("/same", "/same")),
    annotations={"ours": "driver", "shared": "driver", "same": "1"},
    cdi_devices=("v/c=a",),
)
CONFIGURED = configured(
    env={"SHARED": "config", "SAME": "1", "NEW": ""},
    annotations={"shared": "config", "same": "1", "new": ""},
    mounts=(Mount("/config", "/shared", read_only=False), Mount("/same", "/same")),
)


def test_both_are_merged_and_the_configuration_wins():
    merged, _ = complete(DRIVERS, CONFIGURED, 1)
    assert merged == Allocation(
        env={"OURS": "driver", "SHARED": "config", "SAME": "1", "NEW": ""},
        device_nodes=DRIVERS.device_nodes,
        mounts=(Mount("/driver", "/ours"), *CONFIGURED.mounts),
        annotations={"ours": "driver", "shared": "config", "same": "1", "new": ""},
        cdi_devices=("v/c=a",),
    )


def test_only_other_values_are_named_as_replaced():
    _, replaced = complete(DRIVERS, CONFIGURED, 1)
    assert replaced == ("env SHARED", "annotation shared", "mount /shared")


def test_a_place_has_many_spellings():
    drivers = Allocation(mounts=(Mount("/d", "/data/"),))
    configured_ = configured(mounts=(Mount("/config", "/data"),))
    assert complete(drivers, configured_, 1) == (Allocation(mounts=configured_.mounts), ("mount /data/",))


def test_a_mount_over_a_device_node_is_refused():
    drivers = Allocation(device_nodes=(DeviceNode("/dev/a", "//dev/./a"),))
    with pytest.raises(ValueError, match=r"mounts\[0\]\.container_path is '/dev/a', which is .* device node /dev/a;"):
        complete(drivers, configured(mounts=(Mount("/config", "/dev/a"),)), 1)


def test_shares_have_an_environment_of_their_own():
    config = configured(shares=Shares(4, env={"PART": "{granted}/{shares}", "BOTH": "shares"}), env={"BOTH": "config"})
    merged, _ = complete(Allocation(), config, 2)
    assert merged == Allocation({"PART": "2/4", "BOTH": "config"})


def test_without_additions_nothing_changes():
    assert complete(DRIVERS, configured(), 1) == (DRIVERS, ())


@dataclasses.dataclass(frozen=True, slots=True)
class Wider(Allocation):
    """An allocation with a field that nobody knows."""

    net_devices: tuple[str, ...] = ()


def test_an_addition_keeps_unknown_fields():
    given = Wider(env={"A": "1"}, net_devices=("eth1",))
    merged, _ = complete(given, configured(env={"B": "2"}, annotations={"a": "1"}, mounts=(Mount("/m", "/m"),)), 1)
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
