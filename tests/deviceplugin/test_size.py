"""Arithmetic instead of encoding: never less than what the list takes, and exact where it matters."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway.deviceplugin.api import APIS, Call
from dpgateway.deviceplugin.size import LARGEST_ANSWER, bound, too_large, too_long, worst
from dpgateway.deviceplugin.values import Grant
from dpgateway.model import Allocation, Device, DeviceNode, Health, Mount
from dpgateway.resource.offers import Offer
from dpgateway.resource.shares import share_ids

WET = Health.unhealthy("wet")
NODES = st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 300), max_size=20).map(tuple)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0:"), min_size=1, max_size=150)
DEVICES = st.lists(st.builds(Device, TEXTS, st.sampled_from([Health.healthy(), WET]), NODES), max_size=3)


def encoded(offers):
    return len(b"".join(APIS[0].to_offer(replace(offer, health=WET)) for offer in offers))


def offered(devices, shares):
    return [Offer(i, device.health, device.numa_nodes) for device in devices for i in share_ids(device.id, shares)]


@given(devices=DEVICES, shares=st.sampled_from([1, 2, 200]))
@settings(deadline=None, max_examples=50)
def test_the_worst_is_what_v1beta1_would_send_and_the_bound_is_never_less(devices, shares):
    offers = offered(devices, shares)
    exact = encoded(offers)
    assert worst(offers) == exact
    assert bound(devices, [device.id for device in devices], shares) >= exact


def test_the_whole_list_is_asked_for_only_when_it_may_be_too_long():
    def never():
        raise AssertionError("nobody need make that list")

    few, too_many = [Device("a")], [Device(f"{number:063}") for number in range(60_000)]
    assert too_long(few, 1, 0, never) == ""
    assert too_long(too_many, 1, 0, never).startswith("the list of 60000 ids takes 4680000 bytes or more")
    assert too_long(few, 1, 4 * 1024 * 1024, lambda: offered(few, 1)) == ""


def answer(api, grant):
    encode = next(rpc.encode for rpc in api.rpcs if rpc.call is Call.ALLOCATE)
    return len(encode((grant,)))


def filled(where, text):
    """A grant with this text where it says."""
    if where == "id":
        return Grant(("a", text), Allocation())
    path = f"/{text}"
    kinds = {
        "env": lambda: Allocation(env={"A": text}),
        "env's name": lambda: Allocation(env={text: ""}),
        "annotation": lambda: Allocation(annotations={"a": text}),
        "annotation's name": lambda: Allocation(annotations={text: ""}),
        "device node": lambda: Allocation(device_nodes=(DeviceNode(path, "/a"),)),
        "device node in the container": lambda: Allocation(device_nodes=(DeviceNode("/a", path),)),
        "mount": lambda: Allocation(mounts=(Mount(path, "/a"),)),
        "mount in the container": lambda: Allocation(mounts=(Mount("/a", path),)),
        "CDI device": lambda: Allocation(cdi_devices=(f"v.example/c={text}",)),
    }
    return Grant(("a",), kinds[where]())


NEW, V1ALPHA2, V1ALPHA1 = APIS
NODES_AND_MOUNTS = ["device node", "device node in the container", "mount", "mount in the container"]
PLACES = ["env", "env's name", "annotation", "annotation's name", *NODES_AND_MOUNTS, "CDI device"]
SIZES = [*((NEW, where, "x") for where in PLACES), (NEW, "env", "\U0001f600"), (V1ALPHA2, "env", "x")]
SIZES += [(V1ALPHA1, "env", "x"), (V1ALPHA1, "id", "x")]


@pytest.mark.parametrize(("api", "where", "character"), SIZES)
def test_an_answer_may_be_as_large_as_the_kubelet_takes_it_and_no_larger(api, where, character):
    spare = answer(api, filled(where, "x" * LARGEST_ANSWER)) - LARGEST_ANSWER  # what isn't the text itself
    text = character * ((LARGEST_ANSWER - spare) // len(character.encode()))
    text += "x" * (LARGEST_ANSWER - answer(api, filled(where, text)))
    assert answer(api, filled(where, text)) == LARGEST_ANSWER
    assert too_large([filled(where, text)], api) == ""
    larger = answer(api, filled(where, text + "x"))
    expected = f"the answer takes {larger} bytes, and the kubelet accepts {LARGEST_ANSWER}"
    assert too_large([filled(where, text + "x")], api) == expected


def test_all_containers_of_an_answer_count():
    half = filled("env", "x" * (LARGEST_ANSWER // 2))
    assert too_large([half], APIS[0]) == ""
    assert too_large([half, half], APIS[0]).startswith("the answer takes ")
