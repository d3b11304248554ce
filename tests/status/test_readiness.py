"""When the kubelet has everything, and what is said if it hasn't."""

from dataclasses import replace

import pytest

from dpgateway.resource.standing import Standing
from dpgateway.status import Reloads, ResourceStatus, readiness, report
from dpgateway.status.readiness import DAMPED, NO_KUBELET, History, Past
from dpgateway.status.values import DriverStatus, Failure

SERVING = Standing("deviceplugin", "serving", registered=True, streaming=True, listed=True, api="v1beta1")
READY = ResourceStatus("example.com/a", True, (SERVING,), None, DriverStatus("x", "1", None, None, None))


def other(wrong=None, **registration):
    changed = replace(SERVING, **{"streaming": False, "listed": False, **registration})
    return replace(READY, name="example.com/b", registrations=(changed,), failure=wrong)


def test_ready_when_each_list_is_there():
    found = readiness([READY, replace(READY, name="example.com/b")], kubelet=True)
    assert (found.ready, found.reason) == (True, None)
    assert [(one.name, one.ready, one.reason) for one in found.resources] == [
        ("example.com/a", True, None),
        ("example.com/b", True, None),
    ]


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (other(streaming=True), "the kubelet has asked for its list, which isn't sent yet"),
        (other(), "the kubelet accepted its registration, but hasn't asked for its list yet"),
        (other(registered=False, failure="registering failed: no"), "registering failed: no"),
        (other(Failure("no bus", None), registered=False), "not registered: no bus"),
        (other(registered=False), "not registered yet"),
        (other(streaming=True, listed=True, failure="another plugin's"), "another plugin's"),
    ],
)
def test_reason_of_one_that_is_not_ready(one, reason):
    found = readiness([READY, one], kubelet=True)
    assert (found.ready, found.reason) == (False, "not ready: example.com/b")
    assert [one.reason for one in found.resources] == [None, reason]


def test_without_a_kubelet_nothing_is_ready():
    found = readiness([other(registered=False)], kubelet=False)
    assert (found.ready, found.kubelet, found.reason) == (False, False, NO_KUBELET)
    assert [one.reason for one in found.resources] == [NO_KUBELET]
    assert not readiness([], kubelet=False).ready


def test_socket_gone_under_an_open_stream():
    found = readiness([READY], kubelet=False)
    assert (found.ready, found.reason, found.resources[0].ready) == (False, NO_KUBELET, True)


def test_failing_driver_that_never_had_devices():
    assert readiness([replace(READY, failure=Failure("no bus", None))], kubelet=True).ready


def test_failing_driver_that_had_devices():
    past = Past(deprived=frozenset({READY.name}))
    found = readiness([replace(READY, failure=Failure("no bus", None))], kubelet=True, past=past)
    assert (found.ready, found.resources[0].reason) == (False, "no device is Healthy any more: no bus")
    assert readiness([READY], kubelet=True, past=past).ready


def test_ready_a_moment_ago_with_its_reason():
    away = other(registered=False)
    found = readiness([READY, away], kubelet=True, past=Past(ready=frozenset({away.name})))
    assert (found.ready, found.reason) == (True, None)
    assert [(one.ready, one.reason) for one in found.resources] == [(True, None), (True, "not registered yet")]
    found = readiness([away], kubelet=False, past=Past(ready=frozenset({away.name}), kubelet=True))
    assert (found.ready, found.kubelet, found.resources[0].reason) == (True, False, NO_KUBELET)


def noted(*looks):
    history = History()
    for now, listed in looks:
        history.note(now, listed=listed, had_devices=True)
    return history


@pytest.mark.parametrize(
    ("looks", "deprived_since", "kubelet_since", "end"),
    [
        pytest.param([(0, True), (100, False)], None, 0, 100 + DAMPED, id="its stream ends"),
        pytest.param([(0, True), (9, False), (15, False)], None, 0, 9 + DAMPED, id="from the first"),
        pytest.param([(0, True), (5, False)], None, 300, 300 + DAMPED, id="the next kubelet is late"),
        pytest.param([(0, True)], 5, 0, 5 + DAMPED, id="its driver fails"),
        pytest.param([(0, True), (7, False)], 5, 0, 5 + DAMPED, id="then its stream ends"),
    ],
)
def test_ready_for_a_while_longer(looks, deprived_since, kubelet_since, end):
    history = noted(*looks)
    assert history.passing(end - 0.1, kubelet_since, deprived_since)
    assert not history.passing(end, kubelet_since, deprived_since)


def test_never_ready_has_no_while():
    assert not noted((0, False)).passing(0, 0)


def test_deprived_after_having_had_devices():
    new = History()
    assert not new.deprived(had_devices=False, healthy=False)
    assert new.deprived(had_devices=True, healthy=False)
    assert not new.deprived(had_devices=True, healthy=True)
    assert noted((0, True)).deprived(had_devices=False, healthy=False), "it began anew"


def test_every_front_has_to_be_ready():
    away = replace(SERVING, front="dra", streaming=False, listed=False, failure="registering failed: no")
    found = readiness([replace(READY, registrations=(SERVING, away))], kubelet=True)
    assert (found.ready, found.resources[0].reason) == (False, "registering failed: no")


# what systemd is told


def told(name, *, started=True, streaming=False, failed=False):
    registration = replace(SERVING, streaming=streaming)
    failure = Failure("no bus", None) if failed else None
    return replace(READY, name=name, started=started, registrations=(registration,), failure=failure)


def test_ready_when_all_are_started():
    started, other = told("a"), told("b", started=False)
    assert report([started], kubelet=True).ready
    assert not report([started, other], kubelet=True).ready
    assert report([], kubelet=False).ready


@pytest.mark.parametrize(
    ("resources", "kubelet", "status"),
    [
        ([], False, "0 resources, waiting for a kubelet"),
        ([told("a", streaming=True)], True, "1 resource, 1 streaming"),
        ([told("a", streaming=True), told("b", failed=True)], True, "2 resources, 1 streaming, 1 failed: b"),
        (
            [told("a", failed=True), told("b", failed=True)],
            False,
            "2 resources, waiting for a kubelet, 2 failed: a, ...",
        ),
    ],
)
def test_status_is_a_short_text(resources, kubelet, status):
    assert report(resources, kubelet=kubelet).text == status


def test_refused_configuration_until_one_succeeds():
    refused = Reloads("1").refuse("2", ["one thing"])
    taken = refused.took_over("3")
    assert report([], refused.refusal, kubelet=False).text.endswith(
        ", the configuration is refused, and the old one goes on"
    )
    assert report([], taken.refusal, kubelet=False).text == "0 resources, waiting for a kubelet"
