"""A device's attributes, for CEL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgateway import Device
from dpgateway.dra.slices.attributes import MOST, NUMA, PCI_ADDRESS, PCIE_ROOT, attributes

RESOURCE = "example.com/serial"


def test_values_of_each_type() -> None:
    said = attributes(Device("a", attributes={"t": "x", "i": 3, "b": True, "f": 1.5}), RESOURCE, {})
    assert said.values == {
        "resource": {"string": RESOURCE},
        "id": {"string": "a"},
        "t": {"string": "x"},
        "i": {"int": 3},
        "b": {"bool": True},
        "f": {"string": "1.5"},
    }
    assert said.left_out == ()


def test_the_standard_attributes_of_a_pci_function() -> None:
    device = Device("a", numa_nodes=(1,), hardware=("pci 0000:3b:00.0", "char 1:3"))
    said = attributes(device, RESOURCE, {"0000:3b:00.0": "pci0000:3a"}).values
    assert said[NUMA] == {"int": 1}
    assert said[PCI_ADDRESS] == {"string": "0000:3b:00.0"}
    assert said[PCIE_ROOT] == {"string": "pci0000:3a"}


@pytest.mark.parametrize(
    "device",
    [Device("a"), Device("a", numa_nodes=(0, 1), hardware=("pci 0000:3b:00.0", "pci 0000:3b:00.1"))],
    ids=["of none", "of several"],
)
def test_no_standard_attribute_is_guessed(device: Device) -> None:
    assert attributes(device, RESOURCE, {"0000:3b:00.0": "pci0000:3a"}).values.keys() == {"resource", "id"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("long", "x" * 65), ("big", 2**63), ("resource", "other"), ("id", "other"), ("n" * 33, "x")],
    ids=["a long text", "a number over 64 bits", "the gateway's resource", "the gateway's id", "a long name"],
)
def test_what_does_not_fit_is_left_out_and_said(name: str, value: str | int) -> None:
    said = attributes(Device("a", attributes={name: value}), RESOURCE, {})
    assert said.values == {"resource": {"string": RESOURCE}, "id": {"string": "a"}}
    assert len(said.left_out) == 1
    assert repr(name) in said.left_out[0]


def test_of_two_names_that_become_one_the_first_counts() -> None:
    said = attributes(Device("a", attributes={"a-b": 1, "a_b": 2}), RESOURCE, {})
    assert said.values["a_b"] == {"int": 1}
    assert "'a_b'" in said.left_out[0]


@given(st.dictionaries(st.text(min_size=1), st.text() | st.integers() | st.booleans(), max_size=40))
def test_nothing_is_lost_silently(given_: dict[str, str | int | bool]) -> None:
    try:
        device = Device("a", attributes=given_)
    except ValueError:  # not valid text
        return
    said = attributes(device, RESOURCE, {})
    assert len(said.values) <= MOST
    assert len(said.values) + len(said.left_out) == len(given_) + 2
