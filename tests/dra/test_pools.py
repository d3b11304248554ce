"""What the resources offer, as the content of their pools."""

from __future__ import annotations

from dataclasses import replace

from dpgateway import Device
from dpgateway.dra.pools import pools
from dpgateway.dra.slices.attributes import PCIE_ROOT
from dpgateway.dra.slices.names import key
from dpgateway.dra.slices.offered import Offered


def offered(id_: str, *hardware: str) -> Offered:
    return Offered(Device(id_, hardware=hardware or None), "example.com/serial", id_, frozenset(hardware or {id_}))


def test_a_pool_is_unknown_until_all_of_its_resources_are_known() -> None:
    some = [("n1/a", [offered("a")]), ("n1/b", [offered("b")]), ("n1/b", None), ("n1/c", ())]
    found = pools(["n1/a"], some, "dra.example.com")
    assert {name: None if one is None else len(one.devices) for name, one in found.items()} == {
        "n1/a": None,
        "n1/b": None,
        "n1/c": 0,
    }


def test_of_resources_with_one_name_the_first_is_published() -> None:
    """They differ in their domains only. A name that occurs twice would make the whole pool invalid."""
    some = [(f"{which}.example/fpga", key(f"{which}.example/fpga", "boards", "0")) for which in "ab"]
    both = [Offered(Device("0"), resource, name, frozenset({"board"})) for resource, name in some]
    found = pools([], [("n1/boards", [one]) for one in both], "dra.example.com")["n1/boards"]
    assert found is not None
    assert [one["attributes"]["resource"] for one in found.devices] == [{"string": "a.example/fpga"}]  # type: ignore[index]
    assert [text.partition(" isn't")[0] for text in found.left_out] == ["device 0 of b.example/fpga"]


def test_the_name_of_a_withheld_device_stays_its_own() -> None:
    """A claim of that name gets the first one's device, however long it is withheld."""
    some = [(f"{which}.example/fpga", key(f"{which}.example/fpga", "boards", "0")) for which in "ab"]
    first, second = (Offered(Device("0"), resource, name, frozenset({resource})) for resource, name in some)
    found = pools([], [("n1/boards", [replace(first, withheld=True), second])], "dra.example.com")["n1/boards"]
    assert found is not None
    assert found.devices == ()


def test_a_pci_function_that_is_gone_has_no_root() -> None:
    found = pools([], [("n1/a", [offered("a", "pci ffff:ff:1f.7")])], "dra.example.com")["n1/a"]
    assert found is not None
    assert PCIE_ROOT not in found.devices[0]["attributes"]  # type: ignore[operator]  # as JSON has it
