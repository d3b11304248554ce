"""What there is to say, from the status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpgateway.events.conditions import Condition, Subject, conditions
from dpgateway.resource.front import HolderStatus
from dpgateway.resource.standing import Standing
from dpgateway.status.values import DeviceStatus, DriverStatus, Failure, ResourceStatus

NAME, SINCE = "example.com/thing", "2026-11-26T12:00:00Z"
SERVED = Standing("deviceplugin", "SERVING", SINCE, registered=True, streaming=True, listed=True, api="v1beta1")
DRIVER = DriverStatus("chardev", "1", SINCE, None, None)
HOLDER = HolderStatus("default", "p", "uid-p", "c")
NODE = Subject("", "n1", "n1", NAME, "")


def device(id_: str = "a", *holders: HolderStatus, **more: Any) -> DeviceStatus:
    unhealthy = {"healthy": False, "reason": "no link", "since": SINCE} if more.pop("unhealthy", False) else {}
    whole: dict[str, Any] = {
        "id": id_,
        "device": id_.partition("::")[0],
        "healthy": True,
        "reason": None,
        "since": None,
        "lost": False,
        "held": bool(holders),
        "held_since": None,
        "holders": holders,
        "numa_nodes": (),
        "attributes": {},
    }
    return DeviceStatus(**{**whole, **unhealthy, **more})


def resource(*devices: DeviceStatus, **more: Any) -> ResourceStatus:
    whole = {"registrations": (SERVED,), "failure": None, "driver": DRIVER, "devices": devices}
    return ResourceStatus(NAME, True, **{**whole, **more})


def found(*resources: ResourceStatus, kubelet: bool = True) -> dict[Subject, Condition]:
    return conditions("n1", resources, kubelet=kubelet)


def reasons(*resources: ResourceStatus) -> dict[tuple[str, str], str]:
    return {(one.name, one.device): said.reason for one, said in found(*resources).items()}


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (device("a", HOLDER), "DeviceHealthy"),
        (device("a", HOLDER, unhealthy=True), "DeviceUnhealthy"),
        (device("a", HOLDER, unhealthy=True, lost=True), "DeviceGone"),
        (device("a", HOLDER, unhealthy=True, since=None), "DeviceHealthy"),  # another name of its hardware is held
        (device("a::1", HOLDER, unhealthy=True), "DeviceUnhealthy"),
    ],
)
def test_a_pod_is_told_of_its_device(one: DeviceStatus, reason: str) -> None:
    subject = Subject("default", "p", "uid-p", NAME, "a")
    said = found(resource(one))[subject]
    assert said.reason == reason
    assert f"device a of {NAME}" in said.note


@pytest.mark.parametrize("holder", [HolderStatus(pod_uid="u"), HolderStatus("default"), HolderStatus()])
def test_a_pod_without_a_name_isnt_told(holder: HolderStatus) -> None:
    assert list(found(resource(device("a", holder, unhealthy=True)))) == [NODE]


def test_a_device_that_nobody_holds_is_nobodys() -> None:
    assert list(found(resource(device("a", unhealthy=True)))) == [NODE]


def test_of_several_shares_the_worse_counts() -> None:
    shares = device("a", HOLDER), device("a::1", HOLDER, unhealthy=True), device("a::2", HOLDER)
    assert reasons(resource(*shares))["p", "a"] == "DeviceUnhealthy"


def test_each_pod_of_a_device_is_told() -> None:
    other = HolderStatus("other", "q", "uid-q")
    assert reasons(resource(device("a", HOLDER, other, unhealthy=True))).keys() == {("p", "a"), ("q", "a"), ("n1", "")}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "ResourceServed"),
        ({"failure": Failure("it isn't installed", SINCE)}, "ResourceFailed"),
        ({"driver": replace(DRIVER, failure="no answer for 10 s")}, "ResourceFailed"),
        ({"registrations": (replace(SERVED, listed=False, streaming=False),)}, "ResourceUnregistered"),
        ({"registrations": (replace(SERVED, listed=False, failure="refused: no"),)}, "ResourceUnregistered"),
        ({"driver": replace(DRIVER, listed=None)}, None),
        ({"elsewhere": "pid 7"}, None),
    ],
)
def test_the_node_is_told_of_its_resources(more: dict[str, Any], reason: str | None) -> None:
    assert reasons(resource(**more)).get(("n1", "")) == reason


def test_another_gateways_devices_are_its_own_to_tell() -> None:
    assert found(resource(device("a", HOLDER, unhealthy=True), elsewhere="pid 7")) == {}


def test_without_a_kubelet_there_is_nothing_to_say_of_the_node() -> None:
    assert found(resource(failure=Failure("x", SINCE)), kubelet=False) == {}


def test_why_it_isnt_registered_is_in_the_note() -> None:
    one = resource(registrations=(replace(SERVED, listed=False, failure="refused: no"),))
    assert "refused: no" in found(one)[NODE].note


def test_a_device_by_dra_on_a_node_that_can_do_that_no_more() -> None:
    by_claim = HolderStatus("default", "q", "uid-q", claim="one")
    at_risk = {NAME: "kubelet v1.34.0 can't do that"}
    said = conditions("n1", [resource(device("a", HOLDER, by_claim))], kubelet=True, at_risk=at_risk)
    reasons = {one.name: condition.reason for one, condition in said.items()}
    assert reasons == {"n1": "ResourceServed", "p": "DeviceHealthy", "q": "DeviceAtRisk"}
    note = said[Subject("default", "q", "uid-q", NAME, "a")].note
    assert note.startswith(f"device a of {NAME} came by DRA, and kubelet v1.34.0 can't do that. A container")
