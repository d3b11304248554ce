"""Messages and values by reflection, so that a field that is added to either has to be translated."""

import dataclasses
from collections.abc import Mapping

import pytest
from google.protobuf.descriptor import FieldDescriptor

from dpgateway.deviceplugin.values import Grant
from dpgateway.model import Allocation, DeviceNode, Mount


def unset_fields(message, path=""):
    """The paths of all fields, at any depth, that ``message`` doesn't fill with something that travels."""
    for field in message.DESCRIPTOR.fields:
        name, value = f"{path}.{field.name}", getattr(message, field.name)
        if _is_map(field):
            missing = [] if value and all(key and value[key] for key in value) else [name]
        elif field.message_type:
            parts = list(value) if field.is_repeated else [value] if message.HasField(field.name) else []
            missing = [found for part in parts for found in unset_fields(part, name)] if parts else [name]
        else:
            missing = [] if value and (not field.is_repeated or all(value)) else [name]
        yield from missing


def fill_message(message, number=None):
    """Every field of ``message``, at any depth, with values that occur once; returns these values."""
    number = number if number is not None else iter(range(1, 1000))
    filled = []
    for field in message.DESCRIPTOR.fields:
        count = 2 if field.is_repeated else 1
        for _ in range(count):
            if field.message_type:
                inside = getattr(message, field.name)
                filled += fill_message(inside.add() if field.is_repeated else inside, number)
                continue
            value = _SAMPLES[field.cpp_type](next(number))
            filled.append(value)
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
    return filled


_SAMPLES = {
    FieldDescriptor.CPPTYPE_STRING: lambda n: f"text{n}",
    FieldDescriptor.CPPTYPE_INT32: lambda n: n,
    FieldDescriptor.CPPTYPE_INT64: lambda n: n,
    FieldDescriptor.CPPTYPE_BOOL: lambda _: True,
}


def _is_map(field):
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def leaves(value):
    """Every plain value in a model value, in the order of its fields."""
    if dataclasses.is_dataclass(value):
        return [leaf for field in dataclasses.fields(value) for leaf in leaves(getattr(value, field.name))]
    if isinstance(value, Mapping):
        return [leaf for item in value.items() for leaf in item]
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


FULL = Allocation(
    env={"COLOUR": "red", "SIZE": "large"},
    device_nodes=(DeviceNode("/dev/host1", "/dev/inside1", "r"), DeviceNode("/dev/host2", "/dev/inside2", "rwm")),
    mounts=(Mount("/host/one", "/inside/one", read_only=True), Mount("/host/two", "/inside/two", read_only=True)),
    annotations={"note": "blue", "sign": "green"},
    cdi_devices=("vendor.example/class=one", "vendor.example/class=two"),
)


@pytest.fixture
def unset():
    return lambda message: list(unset_fields(message))


@pytest.fixture
def fill():
    return fill_message


@pytest.fixture
def full():
    """A grant with every field of the model filled."""
    empty = [field.name for field in dataclasses.fields(FULL) if not getattr(FULL, field.name)]
    assert not empty, "a field that was added to Allocation has to be filled here"
    return Grant(("a", "a::1"), FULL)


@pytest.fixture
def leaves_of():
    return leaves
