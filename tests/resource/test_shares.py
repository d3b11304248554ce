"""An id that was offered means the same device for ever."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway.model import Device
from dpgateway.resource.shares import clash, device_id, environment, share_ids


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


@pytest.mark.parametrize(
    ("form", "ids"),
    [
        ("{id}-{share}", ("a-0", "a-1")),
        ("kvm{share}", ("kvm0", "kvm1")),
        ("{share}", ("0", "1")),
        ("{id}/vgpu{share}{id}", ("a/vgpu0a", "a/vgpu1a")),
        # sha1sum of 0/dev/a and 1/dev/a, as generic-device-plugin has them
        (
            "{sha1:{share}/dev/{id}}",
            ("76acaffee29b8ef92670a7f7f7173b8f75423377", "ae335d4b0cb30af8f16f15480b52d5ac47aa53a9"),
        ),
    ],
)
def test_shares_can_be_called_as_another_plugin_calls_them(form, ids):
    assert share_ids("a", 2, form) == ids
    assert share_ids("a", 1, form) == ids[:1]


def test_a_form_fills_what_is_written_and_nothing_in_an_id():
    assert share_ids("{share}", 2, "{id}.{share}") == ("{share}.0", "{share}.1")


def test_two_devices_may_not_be_offered_under_one_id():
    why = "a and a1 would both be offered as a10: let shares.ids have {id}, set apart"
    assert clash(("a", "a1"), 11, "{id}{share}") == why
    assert not clash(("a", "a1"), 10, "{id}{share}")
    assert not clash(("a", "a1"), 11, "{id}-{share}")
    assert not clash(("a", "a"), 11, "")


def test_environment_may_depend_on_the_number_of_shares():
    env = {"PERCENT": "{part:100}", "MEMORY": "0={part:40536}M", "N": "{granted} of {shares}", "PLAIN": "x"}
    assert environment(env, 2, 3) == {"PERCENT": "66", "MEMORY": "0=27024M", "N": "2 of 3", "PLAIN": "x"}
