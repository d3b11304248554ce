"""Kubernetes 1.9's messages: what they can say arrives, and what they can't is lost knowingly."""

import dataclasses

from dpgateway.deviceplugin.api import Call
from dpgateway.deviceplugin.api.v1alpha2 import API, from_allocate, from_empty, to_allocations, to_offer, to_register
from dpgateway.deviceplugin.values import Grant, Options, Registration
from dpgateway.deviceplugin.wire import v1alpha2_pb2 as ours
from dpgateway.model import Allocation, DeviceNode, Health, Mount
from dpgateway.resource.shares import Offer
from dpgateway_simulator.wire import deviceplugin as theirs

REGISTRATION = Registration("example.com/thing", "dpgateway/0.sock", Options(prepare=True, prefer=True))


def test_register_fills_every_field(unset):
    assert unset(ours.RegisterRequest.FromString(to_register(REGISTRATION))) == []


def test_register_is_read_by_another_implementation():
    assert theirs.RegisterRequest().parse(to_register(REGISTRATION)) == theirs.RegisterRequest(
        version="v1alpha2", endpoint="dpgateway/0.sock", resource_name="example.com/thing"
    )


def test_register_in_known_bytes():
    registration = Registration("e.x/r", "s", Options())
    assert to_register(registration) == b"\x0a\x08v1alpha2\x12\x01s\x1a\x05e.x/r"


def test_a_list_fills_every_field(unset):
    offer = Offer("a", Health.unhealthy("on fire"), (1, 3))
    assert unset(ours.ListAndWatchResponse.FromString(to_offer(offer))) == []


def test_a_list_is_read_by_another_implementation():
    raw = to_offer(Offer("a")) + to_offer(Offer("b", Health.unhealthy("on fire")))
    assert theirs.ListAndWatchResponse().parse(raw) == theirs.ListAndWatchResponse(
        devices=[theirs.Device("a", "Healthy"), theirs.Device("b", "Unhealthy")]
    )


def test_a_list_in_known_bytes():
    assert to_offer(Offer("a")) == b"\x0a\x0c\x0a\x01a\x12\x07Healthy"
    assert to_offer(Offer("a", Health.unhealthy("on fire"))) == b"\x0a\x0e\x0a\x01a\x12\x09Unhealthy"


def test_every_field_of_an_allocate_request_arrives(fill, leaves_of):
    request = ours.AllocateRequest()
    filled = fill(request)
    assert leaves_of(from_allocate(request.SerializeToString())) == filled


def test_an_allocate_request_is_for_one_container():
    assert from_allocate(bytes(theirs.AllocateRequest(["b", "a"]))) == (("b", "a"),)
    assert from_allocate(b"\x0a\x01b\x0a\x01a") == (("b", "a"),)
    assert from_allocate(b"") == ((),)


def test_an_allocation_fills_every_field(full, unset):
    assert unset(ours.AllocateResponse.FromString(to_allocations((full,)))) == []


def test_an_allocation_is_read_by_another_implementation(full):
    assert theirs.AllocateResponse().parse(to_allocations((full,))) == theirs.AllocateResponse(
        envs={"COLOUR": "red", "SIZE": "large"},
        mounts=[
            theirs.Mount("/inside/one", "/host/one", read_only=True),
            theirs.Mount("/inside/two", "/host/two", read_only=True),
        ],
        devices=[
            theirs.DeviceSpec("/dev/inside1", "/dev/host1", "r"),
            theirs.DeviceSpec("/dev/inside2", "/dev/host2", "rwm"),
        ],
    )


def test_an_allocation_in_known_bytes():
    allocation = Allocation({"K": "V"}, (DeviceNode("/d", "/c", "r"),), (Mount("/h", "/m"),))
    assert to_allocations((Grant(("a",), allocation),)) == (
        b"\x0a\x06\x0a\x01K\x12\x01V\x12\x0a\x0a\x02/m\x12\x02/h\x18\x01\x1a\x0b\x0a\x02/c\x12\x02/d\x1a\x01r"
    )


# what is lost


def test_topology_is_lost():
    assert to_offer(Offer("a", numa_nodes=(0, 1))) == to_offer(Offer("a"))


def test_options_are_lost():
    assert to_register(REGISTRATION) == to_register(dataclasses.replace(REGISTRATION, options=Options()))


def test_only_allocate_and_prepare_are_stored():
    assert [call for call in Call if call not in API.by_call] == [Call.OPTIONS, Call.PREFER, Call.PREPARE]


def test_an_empty_request_has_nothing_to_translate(unset):
    from_empty(b"")
    assert unset(ours.Empty()) == []
