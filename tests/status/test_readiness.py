"""When the kubelet has everything, and what is said if it hasn't."""

from dataclasses import replace

import pytest

from dpgateway.status import Standing, readiness
from dpgateway.status.readiness import NO_KUBELET
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


def test_a_driver_that_fails_is_no_cause_because_the_kubelet_has_its_list():
    assert readiness([replace(READY, failure=Failure("no bus", None))], kubelet=True).ready
