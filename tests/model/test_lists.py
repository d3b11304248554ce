from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dpgateway.model import Device, Health, changed, replaced

A, B, C = Device("a"), Device("b"), Device("c")
WET = replace(B, health=Health.unhealthy("wet"))
LISTS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from([A, B, C, Device("a")]))


def test_replaced_objects_are_paired():
    assert replaced((A, B, C), (A, WET, C)) == [(B, WET)]
    assert replaced((A, B), [A, B]) == []
    assert replaced((A,), (Device("a"),)) == [(A, A)], "nobody compares values, so one that was made again counts"


def test_lists_of_other_lengths_are_not_compared():
    assert replaced((A, B), (A,)) is None
    assert replaced((), (A,)) is None
    assert replaced((), ()) == []


@given(before=LISTS, now=LISTS)
def test_changed_keys_have_another_object(before, now):
    expected = [key for key in now if key not in before or now[key] is not before[key]]
    assert changed(before, now) == expected
    assert changed(before, dict(before)) == []


@given(before=LISTS, now=st.data())
def test_the_order_of_the_keys_is_no_difference(before, now):
    order = now.draw(st.permutations(list(before)))
    assert changed(before, {key: before[key] for key in order}) == []
