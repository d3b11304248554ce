"""When faults are active, and when that changes next: over plain numbers."""

from datetime import timedelta

import pytest
from dpgateway_simulated.faults import Fault, FaultPlan


def seconds(number):
    return timedelta(seconds=number)


@pytest.mark.parametrize(
    ("times", "active", "changes"),
    [
        ({}, {0: True, 9: True}, {0: None}),
        ({"after": 2}, {1.9: False, 2: True, 99: True}, {0: 2, 1.9: 2, 2: None}),
        ({"lasts": 3}, {0: True, 2.9: True, 3: False}, {0: 3, 3: None}),
        ({"after": 2, "lasts": 3}, {1: False, 2: True, 4.9: True, 5: False}, {0: 2, 2: 5, 4: 5, 5: None}),
        (
            {"after": 2, "lasts": 1, "every": 4},
            {1: False, 2: True, 3: False, 5.9: False, 6: True, 7: False, 42: True, 43: False},
            {0: 2, 2: 3, 3: 6, 5: 6, 6: 7, 42.5: 43, 43: 46},
        ),
        (
            {"lasts": 0.125, "every": 0.5},
            {-1: False, 0: True, 0.125: False, 0.5: True, 0.625: False, 1: True},
            {0: 0.125, 0.25: 0.5, 0.5: 0.625},
        ),
    ],
)
def test_times(times, active, changes):
    fault = Fault(absent=True, **{name: seconds(value) for name, value in times.items()})
    plan = FaultPlan((fault,), start=1000)
    assert {at: plan.active(1000 + at) == [fault] for at in active} == active
    assert {at: plan.next_change(1000 + at) for at in changes} == {
        at: value if value is None else 1000 + value for at, value in changes.items()
    }


def test_next_change_is_the_first():
    faults = (Fault(extra=1, after=seconds(9)), Fault(absent=True, after=seconds(5)), Fault(unhealthy="x"))
    assert FaultPlan(faults, 0).next_change(0) == 5


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({}, "^a fault is one of"),
        ({"absent": True, "extra": 1}, "^a fault is one of"),
        ({"absent": True, "call": "list", "hang": True}, "^a fault is one of"),
        ({"hang": True}, "^call: .* found None"),
        ({"absent": True, "call": "list"}, "^call: .* found 'list'"),
        ({"call": "list", "hang": True, "indexes": (1,)}, "^indexes: no meaning"),
        ({"extra": 1, "devices": ("a",)}, "^devices: no meaning"),
        ({"extra": -1}, "^extra: expected nothing below 0, found -1"),
        ({"absent": True, "indexes": (0, -2)}, "^indexes: expected nothing below 0, found -2"),
        ({"absent": True, "after": seconds(-1)}, "^after: expected nothing below 0, found -1"),
        ({"absent": True, "lasts": seconds(0)}, "^lasts: expected more than 0s, found 0s"),
        ({"absent": True, "every": seconds(1)}, "^every: expected 'lasts' too, shorter than 'every'"),
        (
            {"absent": True, "lasts": seconds(2), "every": seconds(2)},
            "^every: expected 'lasts' too, shorter than 'every'",
        ),
    ],
)
def test_senseless_faults_are_refused(fault, message):
    with pytest.raises(ValueError, match=message):
        Fault(**fault)
