"""Both implementations of protobuf read what we write, and we read what both write; nothing is lost."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway.deviceplugin.api.v1beta1 import (
    API,
    from_allocate,
    from_empty,
    from_preference,
    from_prepare,
    to_allocations,
    to_offer,
    to_options,
    to_preference,
    to_prepared,
    to_register,
)
from dpgateway.deviceplugin.values import Grant, Options, Preference, Registration
from dpgateway.deviceplugin.wire import v1beta1_pb2 as ours
from dpgateway.model import Allocation, DeviceNode, Health, Mount
from dpgateway.resource.shares import Offer
from dpgateway_simulator.wire import v1beta1 as theirs

REGISTRATION = Registration("example.com/thing", "dpgateway/0.sock", Options(prepare=True, prefer=True))


# Register


def test_register_fills_every_field(unset):
    assert unset(ours.RegisterRequest.FromString(to_register(REGISTRATION))) == []


def test_register_is_read_by_another_implementation():
    assert theirs.RegisterRequest().parse(to_register(REGISTRATION)) == theirs.RegisterRequest(
        version="v1beta1",
        endpoint="dpgateway/0.sock",
        resource_name="example.com/thing",
        options=theirs.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True),
    )


def test_register_in_known_bytes():
    registration = Registration("e.x/r", "s", Options(prepare=True, prefer=True))
    assert to_register(registration) == b"\x0a\x07v1beta1\x12\x01s\x1a\x05e.x/r\x22\x04\x08\x01\x10\x01"


def test_register_has_options_that_are_off():
    request = ours.RegisterRequest.FromString(to_register(Registration("e.x/r", "s", Options())))
    assert request.HasField("options")
    assert not request.options.ListFields()


CHANGED = [
    (to_register, REGISTRATION, {"resource": "e.x/r", "endpoint": "s", "options": Options()}),
    (to_options, Options(), {"prepare": True, "prefer": True}),
    (to_offer, Offer("a"), {"id": "b", "health": Health.unhealthy("on fire"), "numa_nodes": (1,)}),
    (lambda grant: to_allocations((grant,)), Grant(("a",), Allocation()), {"allocation": Allocation({"E": "1"})}),
]

OWN = {(Grant, "ids"), (Offer, "first"), (Offer, "taken")}
"""What no kubelet is told: the answer is for whoever asked, the id of share 0 and whose fault it is are for the log."""


@pytest.mark.parametrize(("encode", "value", "others"), CHANGED, ids=lambda value: type(value).__name__)
def test_each_field_of_the_model_travels(encode, value, others):
    for field in dataclasses.fields(value):
        if (type(value), field.name) not in OWN:
            assert encode(dataclasses.replace(value, **{field.name: others[field.name]})) != encode(value)


# GetDevicePluginOptions


def test_options_fill_every_field(unset):
    assert unset(ours.DevicePluginOptions.FromString(to_options(Options(prepare=True, prefer=True)))) == []


@pytest.mark.parametrize(
    ("options", "raw"),
    [
        (Options(), b""),
        (Options(prepare=True), b"\x08\x01"),
        (Options(prefer=True), b"\x10\x01"),
    ],
)
def test_each_option_has_its_own_field(options, raw):
    assert to_options(options) == raw


# ListAndWatch


def test_a_list_fills_every_field(unset):
    offer = Offer("a", Health.unhealthy("on fire"), (1, 3))
    assert unset(ours.ListAndWatchResponse.FromString(to_offer(offer))) == []


def test_a_list_is_read_by_another_implementation():
    raw = to_offer(Offer("a", numa_nodes=(1, 3))) + to_offer(Offer("b", Health.unhealthy("on fire")))
    assert theirs.ListAndWatchResponse().parse(raw) == theirs.ListAndWatchResponse(
        devices=[
            theirs.Device(
                id="a",
                health="Healthy",
                topology=theirs.TopologyInfo(nodes=[theirs.NumaNode(id=1), theirs.NumaNode(id=3)]),
            ),
            theirs.Device(id="b", health="Unhealthy"),
        ]
    )


def test_a_list_in_known_bytes():
    assert to_offer(Offer("a", numa_nodes=(1,))) == b"\x0a\x12\x0a\x01a\x12\x07Healthy\x1a\x04\x0a\x02\x08\x01"


def test_a_device_near_no_node_has_no_topology_at_all():
    (device,) = ours.ListAndWatchResponse.FromString(to_offer(Offer("a"))).devices
    assert not device.HasField("topology")
    assert to_offer(Offer("a", Health.unhealthy("on fire"))) == b"\x0a\x0e\x0a\x01a\x12\x09Unhealthy"


def test_node_0_is_a_node():
    (device,) = ours.ListAndWatchResponse.FromString(to_offer(Offer("a", numa_nodes=(0,)))).devices
    assert [node.ID for node in device.topology.nodes] == [0]
    assert to_offer(Offer("a", numa_nodes=(0,))) == b"\x0a\x10\x0a\x01a\x12\x07Healthy\x1a\x02\x0a\x00"


def test_the_reason_of_an_unhealthy_device_is_lost():
    assert to_offer(Offer("a", Health.unhealthy("on fire"))) == to_offer(Offer("a", Health.unhealthy("wet")))


# GetPreferredAllocation


def test_every_field_of_a_preference_arrives(fill, leaves_of):
    request = ours.PreferredAllocationRequest()
    filled = fill(request)
    assert leaves_of(from_preference(request.SerializeToString())) == filled


def test_a_preference_from_another_implementation():
    request = theirs.PreferredAllocationRequest(
        container_requests=[
            theirs.ContainerPreferredAllocationRequest(["a", "b", "c"], ["c"], 2),
            theirs.ContainerPreferredAllocationRequest(["a"], [], 1),
        ]
    )
    assert from_preference(bytes(request)) == (Preference(("a", "b", "c"), ("c",), 2), Preference(("a",), (), 1))


def test_a_preference_in_known_bytes():
    assert from_preference(b"\x0a\x0b\x0a\x01a\x0a\x01b\x12\x01b\x18\x02") == (Preference(("a", "b"), ("b",), 2),)


def test_preferred_ids_fill_every_field(unset):
    assert unset(ours.PreferredAllocationResponse.FromString(to_preference((("a", "b"), ("c",))))) == []


def test_preferred_ids_are_read_by_another_implementation():
    assert theirs.PreferredAllocationResponse().parse(to_preference((("b", "a"), ()))) == (
        theirs.PreferredAllocationResponse(
            container_responses=[
                theirs.ContainerPreferredAllocationResponse(["b", "a"]),
                theirs.ContainerPreferredAllocationResponse([]),
            ]
        )
    )


# Allocate


def test_every_field_of_an_allocate_request_arrives(fill, leaves_of):
    request = ours.AllocateRequest()
    filled = fill(request)
    assert leaves_of(from_allocate(request.SerializeToString())) == filled


def test_an_allocate_request_from_another_implementation():
    request = theirs.AllocateRequest(
        container_requests=[theirs.ContainerAllocateRequest(["b", "a"]), theirs.ContainerAllocateRequest([])]
    )
    assert from_allocate(bytes(request)) == (("b", "a"), ())


def test_an_allocate_request_in_known_bytes():
    assert from_allocate(b"\x0a\x06\x0a\x01a\x0a\x01b\x0a\x03\x0a\x01c") == (("a", "b"), ("c",))


def test_an_allocation_fills_every_field(full, unset):
    assert unset(ours.AllocateResponse.FromString(to_allocations((full, full)))) == []


def test_an_allocation_is_read_by_another_implementation(full):
    raw = to_allocations((full, Grant(("b",), Allocation(mounts=(Mount("/a", "/b", read_only=False),)))))
    assert theirs.AllocateResponse().parse(raw) == theirs.AllocateResponse(
        container_responses=[
            theirs.ContainerAllocateResponse(
                envs={"COLOUR": "red", "SIZE": "large"},
                mounts=[
                    theirs.Mount("/inside/one", "/host/one", read_only=True),
                    theirs.Mount("/inside/two", "/host/two", read_only=True),
                ],
                devices=[
                    theirs.DeviceSpec("/dev/inside1", "/dev/host1", "r"),
                    theirs.DeviceSpec("/dev/inside2", "/dev/host2", "rwm"),
                ],
                annotations={"note": "blue", "sign": "green"},
                cdi_devices=[
                    theirs.CdiDevice("vendor.example/class=one"),
                    theirs.CdiDevice("vendor.example/class=two"),
                ],
            ),
            theirs.ContainerAllocateResponse(mounts=[theirs.Mount("/b", "/a", read_only=False)]),
        ]
    )


def test_an_allocation_in_known_bytes():
    allocation = Allocation({"K": "V"}, (DeviceNode("/d", "/c", "r"),), (Mount("/h", "/m"),), {"n": "o"}, ("v/c=d",))
    container = (
        b"\x0a\x06\x0a\x01K\x12\x01V"
        b"\x12\x0a\x0a\x02/m\x12\x02/h\x18\x01"
        b"\x1a\x0b\x0a\x02/c\x12\x02/d\x1a\x01r"
        b"\x22\x06\x0a\x01n\x12\x01o"
        b"\x2a\x07\x0a\x05v/c=d"
    )
    assert to_allocations((Grant(("a",), allocation),)) == b"\x0a" + bytes([len(container)]) + container


def test_an_empty_grant_has_a_response():
    # without one, kubelets 1.10 and 1.11 crash
    assert to_allocations((Grant(("a",), Allocation()),)) == b"\x0a\x00"


@given(
    env=st.dictionaries(
        st.from_regex(r"\A[A-Z_]{1,5}\Z"), st.text(st.characters(codec="utf-8", exclude_characters="\0"))
    ),
    paths=st.lists(st.from_regex(r"\A(/[a-zé]{1,3}){1,3}\Z"), unique=True),
    permissions=st.sampled_from(["r", "w", "m", "rw", "rm", "wm", "rwm"]),
    read_only=st.booleans(),
)
@settings(deadline=None, max_examples=50)
def test_whatever_a_driver_says_arrives(env, paths, permissions, read_only):
    half = len(paths) // 2
    nodes = tuple(DeviceNode("/dev/x", path, permissions) for path in paths[:half])
    mounts = tuple(Mount("/x", path, read_only) for path in paths[half:])
    grant = Grant(("a",), Allocation(env, nodes, mounts, env))
    (answer,) = theirs.AllocateResponse().parse(to_allocations((grant,))).container_responses
    assert answer.envs == answer.annotations == env
    assert answer.devices == [theirs.DeviceSpec(path, "/dev/x", permissions) for path in paths[:half]]
    assert answer.mounts == [theirs.Mount(path, "/x", read_only) for path in paths[half:]]


# PreStartContainer


def test_every_field_of_a_prepare_request_arrives(fill, leaves_of):
    request = ours.PreStartContainerRequest()
    filled = fill(request)
    assert leaves_of(from_prepare(request.SerializeToString())) == filled


def test_a_prepare_request_from_another_implementation():
    assert from_prepare(bytes(theirs.PreStartContainerRequest(["b", "a"]))) == ("b", "a")
    assert from_prepare(b"\x0a\x01b\x0a\x01a") == ("b", "a")


def test_prepared_says_nothing(unset):
    assert to_prepared(None) == b""
    assert unset(ours.PreStartContainerResponse()) == []


def test_an_empty_request_has_nothing_to_translate(unset):
    from_empty(b"")
    assert unset(ours.Empty()) == []


def test_unknown_fields_of_a_newer_kubelet_are_ignored():
    newer = b"\x9a\x06\x03new"  # field 99
    assert from_allocate(b"\x0a\x03\x0a\x01a" + newer) == (("a",),)
    from_empty(newer)


def test_nothing_of_an_allocation_is_lost():
    assert API.losses == ()
