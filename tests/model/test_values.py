"""Values check themselves: what can't travel or can't be meant is refused where it is made."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgateway import model
from dpgateway.model import Allocation, Device, DeviceNode, Health, Mount

untyped: Any = model
"""The values as the author of a driver sees them who has no type checker."""


class Endless(Mapping[str, str]):
    """A driver's own class, whose items have no end."""

    def __getitem__(self, _: str) -> str:
        return "x"

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return map(str, itertools.count())


FILLED = (
    Health.unhealthy("on fire"),
    Device("a", Health.unhealthy("on fire"), (1,)),
    DeviceNode("/dev/a", "/dev/b", "r"),
    Mount("/a", "/b", read_only=False),
    Allocation({"E": "1"}, (DeviceNode("/dev/a"),), (Mount("/a", "/b"),), {"n": "1"}, ("v.example/c=a",)),
)


@pytest.mark.parametrize("value", FILLED, ids=lambda value: type(value).__name__)
def test_values_are_frozen_in_every_field(value):
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, getattr(value, field.name))


@pytest.mark.parametrize("value", FILLED, ids=lambda value: type(value).__name__)
def test_values_are_equal_when_all_their_fields_are(value):
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    assert type(value)(**fields) == value


def test_health():
    assert Health.healthy().ok
    assert Health.healthy().reason is None
    assert not Health.unhealthy("on fire").ok
    assert Health.unhealthy("on fire").reason == "on fire"
    assert Health.unhealthy("can't open caf\udce9").reason == r"can't open caf\udce9"
    assert Health.unhealthy("the name is a\0b").reason == r"the name is a\x00b"


def test_of_a_long_reason_the_beginning_is_kept():
    assert Health.unhealthy("x" * 4000).reason == "x" * 4000
    assert Health.unhealthy("x" * 4001).reason == "x" * 4000 + "... (4001 characters)"


def test_a_device_is_healthy_by_default():
    assert Device("a") == Device("a", Health.healthy(), ())


def test_a_device_may_be_near_1024_nodes():
    assert len(untyped.Device("a", numa_nodes=range(1024)).numa_nodes) == 1024


def test_numa_nodes_are_a_set_in_order():
    assert untyped.Device("a", numa_nodes=[3, 0, 3]).numa_nodes == (0, 3)
    assert untyped.Device("a", numa_nodes=[]).numa_nodes == ()


def test_a_device_node_has_its_path_by_default():
    assert DeviceNode("/dev/a") == DeviceNode("/dev/a", "/dev/a", "rw")


def test_a_mount_is_read_only_by_default():
    assert Mount("/a", "/b").read_only


def test_an_allocation_keeps_what_it_was_made_of():
    env, nodes = {"E": ""}, [DeviceNode("/dev/a")]
    allocation = untyped.Allocation(env=env, device_nodes=nodes)
    env["F"] = "2"
    nodes.clear()
    assert (dict(allocation.env), allocation.device_nodes) == ({"E": ""}, (DeviceNode("/dev/a"),))
    with pytest.raises(TypeError):
        allocation.env["F"] = "2"


def test_cdi_devices_are_a_set_in_the_order_given():
    assert untyped.Allocation(cdi_devices=["v/c=b", "v/c=a", "v/c=b"]).cdi_devices == ("v/c=b", "v/c=a")


BAD_VALUES = [
    (lambda: Health.unhealthy(""), "the reason of Health.unhealthy: expected a non-empty string"),
    (lambda: Health(""), "the reason of Health.unhealthy: expected a non-empty string"),
    (lambda: Device(""), "device id: expected a non-empty string"),
    (lambda: Device("a\0b"), r"device id: 'a\\x00b' contains a NUL character"),
    (lambda: Device("\ud800"), "device id: '.ud800' is not valid Unicode text"),
    (lambda: Device("a::1"), "device id 'a::1' ends in '::' and digits"),
    (lambda: Device("a::007"), "device id 'a::007' ends in '::' and digits"),
    (lambda: Device("a" * 1025), "device id 'a{32}'... has 1025 bytes, at most 1024 are allowed"),
    (lambda: Device("ü" * 513), "device id 'ü{32}'... has 1026 bytes, at most 1024 are allowed"),
    (
        lambda: Device("a", numa_nodes=(0, -1)),
        r"device 'a': numa_nodes: expected .* from 0 to 2147483647, found \(0, -1\)",
    ),
    (lambda: Device("a", numa_nodes=(2**31,)), r"device 'a': numa_nodes: expected .* found \(2147483648,\)"),
    (lambda: untyped.Device("a", attributes=Endless()), "attributes: expected 10000 at most, found more"),
    (lambda: untyped.Allocation(env=Endless()), "Allocation.env: expected 10000 at most, found more"),
    (lambda: untyped.Device("a", numa_nodes=itertools.count()), "numa_nodes: expected 1024 at most, found more"),
    (lambda: untyped.Device("a", numa_nodes=range(1025)), "device 'a': numa_nodes: expected 1024 at most"),
    (lambda: untyped.Device("a", hardware=itertools.repeat("b")), "device 'a': hardware: expected 10000 at most"),
    (lambda: untyped.Allocation(cdi_devices=itertools.repeat("v/c=a")), "cdi_devices: expected 10000 at most"),
    (lambda: DeviceNode("dev/a"), "DeviceNode.host_path: expected an absolute path, found 'dev/a'"),
    (lambda: DeviceNode("/dev/../a"), "DeviceNode.host_path: '/dev/../a' contains '..'"),
    (lambda: DeviceNode("/dev/a", ""), "DeviceNode.container_path: expected a non-empty string"),
    (lambda: DeviceNode("/dev/a", "a"), "DeviceNode.container_path: expected an absolute path, found 'a'"),
    (lambda: DeviceNode("/dev/a", permissions=""), "DeviceNode.permissions: expected a non-empty"),
    (lambda: DeviceNode("/dev/a", permissions="rx"), "a non-empty subset of 'rwm', found 'rx'"),
    (lambda: DeviceNode("/dev/a", permissions="rr"), "a non-empty subset of 'rwm', found 'rr'"),
    (lambda: Mount("a", "/b"), "Mount.host_path: expected an absolute path, found 'a'"),
    (lambda: Mount("/a", "/b/.."), "Mount.container_path: '/b/..' contains '..'"),
    (lambda: Allocation(env={"": "1"}), "Allocation.env key: expected a non-empty string"),
    (lambda: Allocation(env={"A=B": "1"}), "Allocation.env: the name 'A=B' contains '='"),
    (lambda: Allocation(annotations={"a": "\0"}), r"Allocation.annotations\['a'\]: .* contains a NUL"),
    (lambda: Allocation(cdi_devices=("a",)), "expected vendor.example/class=name, found 'a'"),
    (
        lambda: Allocation(device_nodes=(DeviceNode("/dev/a", "/b"),), mounts=(Mount("/a", "/b"),)),
        "the container path '/b' is used twice",
    ),
    (
        lambda: Allocation(device_nodes=(DeviceNode("/dev/a", "/b"),), mounts=(Mount("/c", "/./b/"),)),
        "the container path '/./b/' is used twice",
    ),
]

BAD_TYPES = [
    (lambda: untyped.Health.unhealthy(None), "the reason of Health.unhealthy: expected a string, found None"),
    (lambda: untyped.Health.unhealthy(3), "expected a string, found 3"),
    (lambda: untyped.Device(7), "device id: expected a string, found 7"),
    (lambda: untyped.Device("a", "Healthy"), "device 'a': expected health to be a Health, found 'Healthy'"),
    (lambda: untyped.Device("a", joint=1), "device 'a': expected joint to be true or false, found 1"),
    (lambda: untyped.Device("a", numa_nodes=0), "device 'a': numa_nodes: expected a sequence of int, found 0"),
    (lambda: untyped.Device("a", numa_nodes=(True,)), "device 'a': numa_nodes: expected int, found True"),
    (lambda: untyped.Device("a", numa_nodes="01"), "device 'a': numa_nodes: expected a sequence of int, found '01'"),
    (lambda: untyped.DeviceNode(b"/dev/a"), "DeviceNode.host_path: expected a string, found b'/dev/a'"),
    (lambda: untyped.Mount("/a", "/b", read_only="no"), "Mount.read_only: expected true or false, found 'no'"),
    (lambda: untyped.Allocation(env=[("A", "1")]), "Allocation.env: expected a mapping of strings"),
    (lambda: untyped.Allocation(env={"A": 1}), r"Allocation.env\['A'\]: expected a string, found 1"),
    (
        lambda: untyped.Allocation(device_nodes=("/dev/a",)),
        "Allocation.device_nodes: expected DeviceNode, found '/dev/a'",
    ),
    (lambda: untyped.Allocation(mounts=Mount("/a", "/b")), "Allocation.mounts: expected a sequence of Mount"),
    (lambda: untyped.Allocation(cdi_devices="v/c=a"), "Allocation.cdi_devices: expected a sequence of str"),
]


@pytest.mark.parametrize(("make", "says"), BAD_VALUES, ids=[says for _, says in BAD_VALUES])
def test_a_wrong_value_is_named_and_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize(("make", "says"), BAD_TYPES, ids=[says for _, says in BAD_TYPES])
def test_a_wrong_type_is_named_and_refused(make, says):
    with pytest.raises(TypeError, match=says):
        make()


@given(st.text())
def test_every_id_that_is_accepted_can_travel(text):
    try:
        device = Device(text)
    except ValueError:
        return
    assert device.id == text
    assert text
    assert text.encode().decode() == text


def test_checked_attributes_are_shared():
    said: dict[str, str | int] = {"vendor": "0x8086", "slots": 2, "spare": True}
    first = Device("a", attributes=said)
    second = Device("b", attributes=first.attributes)
    said["vendor"] = "another"
    assert second.attributes is first.attributes
    assert first.attributes == {"vendor": "0x8086", "slots": 2, "spare": True} == first.attributes
    assert first.attributes != {"vendor": "another"}
    assert (list(first.attributes), len(first.attributes)) == (["vendor", "slots", "spare"], 3)
    assert repr(first.attributes) == "{'vendor': '0x8086', 'slots': 2, 'spare': True}"
    shared: Any = first.attributes
    with pytest.raises(TypeError):
        shared["vendor"] = "another"
    with pytest.raises(TypeError):
        hash(shared)
