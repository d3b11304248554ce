"""A bound instead of encoding: never less than what the list takes, and exact where it matters."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway.deviceplugin.api import APIS, LARGEST, LIST_LIMIT
from dpgateway.model import Device, Health
from dpgateway.resource.limit import ListLimit
from dpgateway.resource.shares import Offer, share_ids

WET = Health.unhealthy("wet")
NODES = st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 300), max_size=20).map(tuple)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0:"), min_size=1, max_size=150)
DEVICES = st.lists(st.builds(Device, TEXTS, st.sampled_from([Health.healthy(), WET]), NODES), max_size=3)


def encoded(api, offers):
    return len(b"".join(api.to_offer(replace(offer, health=WET)) for offer in offers))


def offered(devices, shares):
    return [Offer(i, device.health, device.numa_nodes) for device in devices for i in share_ids(device.id, shares)]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@given(devices=DEVICES, shares=st.sampled_from([1, 2, 200]))
@settings(deadline=None, max_examples=50)
def test_the_bound_is_never_less_than_an_unhealthy_list(api, devices, shares):
    offers = offered(devices, shares)
    exact = encoded(api, offers)
    assert api.largest(offers) == exact
    assert ListLimit(LARGEST, api.largest).bound(devices, [device.id for device in devices], shares) >= exact


def test_the_whole_list_is_seldom_made():
    def never():
        raise AssertionError("nobody need make that list")

    few, too_many = [Device("a")], [Device(f"{number:063}") for number in range(60_000)]
    assert LIST_LIMIT.too_long(few, 1, "", 0, never) == ""
    assert LIST_LIMIT.too_long(too_many, 1, "", 0, never).startswith(
        "the list of 60000 ids takes 4680000 bytes or more"
    )
    assert LIST_LIMIT.too_long(few, 1, "", LARGEST, lambda: offered(few, 1)) == ""
