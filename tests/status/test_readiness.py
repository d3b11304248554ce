"""When the kubelet has everything, and what is said if it hasn't."""

from dataclasses import replace

import pytest

from dpgateway.status import Standing, readiness
from dpgateway.status.readiness import DAMPED, NO_KUBELET, Past, Record
from dpgateway.status.values import Failure, Registration

SERVING = Registration("serving", None, registered=True, streaming=True, listed=True, api="v1beta1", failure=None)
READY = Standing("example.com/a", started=True, registration=SERVING, failure=None)


def other(wrong=None, **registration):
    changed = replace(SERVING, **{"streaming": False, "listed": False, **registration})
    return replace(READY, name="example.com/b", registration=changed, failure=wrong)


def test_it_is_ready_when_the_kubelet_has_the_list_of_each():
    found = readiness([READY, replace(READY, name="example.com/b")], kubelet=True)
    assert (found.ready, found.reason) == (True, None)
    assert [(one.name, one.ready, one.reason) for one in found.resources] == [
        ("example.com/a", True, None),
        ("example.com/b", True, None),
    ]


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        (other(streaming=True), "the kubelet has asked for its list, which isn't sent yet"),
        (other(), "the kubelet accepted its registration, but hasn't asked for its list yet"),
        (other(registered=False, failure="registering failed: no"), "registering failed: no"),
        (other(Failure("no bus", None), registered=False), "not registered: no bus"),
        (other(registered=False), "not registered yet"),
        (other(streaming=True, listed=True, failure="another plugin's"), "another plugin's"),
    ],
)
def test_each_cause_is_told_of_the_resource_and_leaves_the_others_ready(standing, reason):
    found = readiness([READY, standing], kubelet=True)
    assert (found.ready, found.reason) == (False, "not ready: example.com/b")
    assert [one.reason for one in found.resources] == [None, reason]


def test_without_a_kubelet_nothing_is_ready():
    found = readiness([other(registered=False)], kubelet=False)
    assert (found.ready, found.kubelet, found.reason) == (False, False, NO_KUBELET)
    assert [one.reason for one in found.resources] == [NO_KUBELET]
    assert not readiness([], kubelet=False).ready


def test_a_socket_that_is_gone_under_an_open_stream_is_told_though_the_kubelet_has_the_list():
    found = readiness([READY], kubelet=False)
    assert (found.ready, found.reason, found.resources[0].ready) == (False, NO_KUBELET, True)


def test_a_driver_that_fails_is_no_cause_where_there_never_was_a_device():
    assert readiness([replace(READY, failure=Failure("no bus", None))], kubelet=True).ready


def test_a_driver_that_fails_is_one_where_there_were_devices_and_hardware_that_goes_is_none():
    past = Past(deprived=frozenset({READY.name}))
    found = readiness([replace(READY, failure=Failure("no bus", None))], kubelet=True, past=past)
    assert (found.ready, found.resources[0].reason) == (False, "no device is Healthy any more: no bus")
    assert readiness([READY], kubelet=True, past=past).ready


def test_what_was_ready_a_moment_ago_is_ready_still_and_says_what_is_under_way():
    away = other(registered=False)
    found = readiness([READY, away], kubelet=True, past=Past(ready=frozenset({away.name})))
    assert (found.ready, found.reason) == (True, None)
    assert [(one.ready, one.reason) for one in found.resources] == [(True, None), (True, "not registered yet")]
    found = readiness([away], kubelet=False, past=Past(ready=frozenset({away.name}), kubelet=True))
    assert (found.ready, found.kubelet, found.resources[0].reason) == (True, False, NO_KUBELET)


GOOD = {"listed": True, "healthy": True, "failed": False}


def noted(*looks):
    record = Record()
    for now, change in looks:
        record.note(now, **{**GOOD, **change})
    return record


@pytest.mark.parametrize(
    ("looks", "kubelet_since", "end"),
    [
        pytest.param([(0, {}), (100, {"listed": False})], 0, 100 + DAMPED, id="its stream ends"),
        pytest.param([(0, {}), (9, {"listed": False}), (15, {"listed": False})], 0, 9 + DAMPED, id="from the first"),
        pytest.param([(0, {}), (5, {"listed": False})], 300, 300 + DAMPED, id="the next kubelet is late"),
        pytest.param([(0, {}), (5, {"healthy": False, "failed": True})], 0, 5 + DAMPED, id="its driver fails"),
    ],
)
def test_it_counts_as_ready_for_a_while_after_it_was(looks, kubelet_since, end):
    record = noted(*looks)
    assert record.passing(end - 0.1, kubelet_since)
    assert not record.passing(end, kubelet_since)


def test_what_was_never_ready_has_no_while():
    assert not noted((0, {"listed": False, "healthy": False})).passing(0, 0)


def test_a_driver_that_fails_before_there_was_a_device_deprives_nobody():
    assert not noted((0, {"healthy": False, "failed": True})).deprived
    assert noted((0, {}), (1, {"healthy": False})).deprived
    assert not noted((0, {}), (1, {"healthy": False}), (2, {})).deprived
