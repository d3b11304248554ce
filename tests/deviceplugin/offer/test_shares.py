"""An id that was offered means the same device for ever."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway.deviceplugin.offer.shares import device_id, share_ids
from dpgateway.model import Device


def accepted(text):
    try:
        Device(text)
    except ValueError:
        return False
    return True


IDS = st.text(st.sampled_from("a:01-\n٣"), min_size=1, max_size=8).filter(accepted)


def test_share_0_has_the_devices_own_id():
    assert share_ids("a", 1) == ("a",)
    assert share_ids("a", 3) == ("a", "a::1", "a::2")


@given(IDS, st.integers(1, 30))
@settings(deadline=None)
def test_each_share_is_of_its_device(name, count):
    assert {device_id(offered) for offered in share_ids(name, count)} == {name}


@given(st.lists(IDS, unique=True), st.integers(1, 30))
@settings(deadline=None)
def test_no_two_devices_have_a_share_in_common(names, count):
    offered = [share for name in names for share in share_ids(name, count)]
    assert len(set(offered)) == len(names) * count


@pytest.mark.parametrize("name", ["a", "a::", "a::b", "a::1x", "::", "a:1", "1"])
def test_an_id_that_only_looks_like_a_share_is_a_device(name):
    assert accepted(name)
    assert device_id(name) == name
