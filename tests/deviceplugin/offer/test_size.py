"""Arithmetic instead of encoding: never less than what the list takes, and exact where it matters."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway.deviceplugin.api import APIS
from dpgateway.deviceplugin.offer.shares import share_ids
from dpgateway.deviceplugin.offer.size import bound, too_long, worst
from dpgateway.model import Device, Health, Offer

WET = Health.unhealthy("wet")
NODES = st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 300), max_size=40).map(tuple)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0:"), min_size=1, max_size=300)
DEVICES = st.lists(st.builds(Device, TEXTS, st.sampled_from([Health.healthy(), WET]), NODES), max_size=6)


def encoded(offers):
    return len(b"".join(APIS[0].to_offer(replace(offer, health=WET)) for offer in offers))


def offered(devices, shares):
    return [Offer(i, device.health, device.numa_nodes) for device in devices for i in share_ids(device.id, shares)]


@given(devices=DEVICES, shares=st.sampled_from([1, 2, 1000]))
@settings(deadline=None)
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
