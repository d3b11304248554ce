"""What the configuration says wins over the driver, and what it replaced is named."""

import dataclasses

from dpgateway.model import Allocation, DeviceNode, Mount
from dpgateway.resource.additions import Additions, add

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


def test_no_field_of_an_allocation_is_forgotten():
    merged, _ = add(DRIVERS, Additions())
    assert all(getattr(merged, field.name) for field in dataclasses.fields(merged))
