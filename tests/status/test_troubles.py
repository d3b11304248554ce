"""What is said to be wrong, and what to do about it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpgateway.resource.front import HolderStatus
from dpgateway.resource.standing import Standing
from dpgateway.status import Reloads, ResourceStatus, troubles
from dpgateway.status.troubles import of_left
from dpgateway.status.values import DeviceStatus, DriverStatus, Failure, KubeletStatus, PodResourcesStatus

NOW = "2026-01-01T00:00:00Z"
THERE = KubeletStatus(there=True, since=NOW, incarnation="1", api="v1beta1", release=None)
ASKED = PodResourcesStatus(NOW, None)
SERVING = Standing("deviceplugin", "serving", NOW, registered=True, streaming=True, listed=True, api="v1beta1")
GOOD = DeviceStatus("a", "a", True, None, None, False, False, None, (), (), {})
SICK = replace(GOOD, healthy=False, reason="no answer", since=NOW)


def resource(*devices, driver=None, **changes) -> Any:
    whole = ResourceStatus(
        "example.com/a", True, (SERVING,), None, DriverStatus("x", "1", NOW, driver, None, len(devices))
    )
    return replace(whole, devices=devices, **changes)


def found(*resources, reloads=None, kubelet=THERE, asked=ASKED):
    wrong = troubles(Path("/dp"), reloads or Reloads(NOW), kubelet, asked, resources)
    return [(one.level, one.resource, one.reason) for one in wrong]


def test_none_while_healthy_or_excluded():
    assert found(resource(GOOD, replace(SICK, since=None))) == []


def test_no_device_is_offered_while_the_front_changes():
    assert found(replace(resource(), driver=DriverStatus("x", "1", NOW, None, None, 2))) == []


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (resource(), ("warning", "the driver finds no device")),
        (resource(GOOD, driver="no bus"), ("warning", "the driver doesn't list its devices now: no bus")),
        (resource(GOOD, SICK), ("warning", "1 of 2 devices Unhealthy (a): no answer")),
        (resource(*5 * [SICK]), ("warning", "5 of 5 devices Unhealthy (a, a, a and 2 more): no answer")),
        (resource(SICK, failure=Failure("no driver", NOW)), ("error", "no driver")),
        (
            resource(GOOD, registrations=(replace(SERVING, streaming=False, failure="registering failed: no"),)),
            ("error", "registering failed: no"),
        ),
        (resource(GOOD, registrations=(replace(SERVING, failure="another plugin's"),)), ("error", "another plugin's")),
        (
            resource(replace(SICK, lost=True, held=True, holders=(HolderStatus("n", "p", None, "c"),))),
            ("warning", "a is gone, but n/p holds it"),
        ),
        (
            resource(
                GOOD, replace(SICK, id="a::1", lost=True, held=True, holders=(HolderStatus("n", "p", None, "c"),))
            ),
            ("warning", "a::1 isn't offered any more, but n/p holds it"),
        ),
        (
            resource(GOOD, refused=Failure("worn out", NOW)),
            ("warning", "the last container that wanted a device got none: worn out"),
        ),
        (
            resource(SICK, elsewhere="another gateway serves it", registrations=(replace(SERVING, streaming=False),)),
            ("warning", "another gateway serves it"),
        ),
        (
            resource(GOOD, unsaved="/s/1.json: no space"),
            (
                "warning",
                "after a restart of the gateway nobody will remember what is given away now: /s/1.json: no space",
            ),
        ),
    ],
)
def test_troubles_of_a_resource(one, told):
    assert found(one) == [(told[0], "example.com/a", told[1])]


def test_missing_kubelet_is_told_once():
    away = resource(GOOD, registrations=(replace(SERVING, registered=False, streaming=False),))
    refused = replace(ASKED, failure="connection refused")
    assert found(away, away, kubelet=replace(THERE, there=False), asked=refused) == [
        ("error", "", "there is no kubelet: /dp has no kubelet.sock")
    ]


def test_errors_before_warnings():
    refused = Reloads(NOW).refuse(NOW, ["a.yaml:1: wrong", "a.yaml:2: wrong"])
    failed = resource(failure=Failure("no driver", NOW))
    assert found(failed, reloads=refused, asked=PodResourcesStatus(None, "no answer")) == [
        ("error", "example.com/a", "no driver"),
        ("warning", "", "the kubelet doesn't say which pods have what: no answer"),
        ("warning", "", "the configuration is refused, and the old one goes on: a.yaml:1: wrong and 1 more"),
    ]


def test_held_of_a_removed_resource():
    (one,) = of_left({"example.com/gone": (("a", "n/p (c)"),), "example.com/over": ()})
    assert (one.level, one.resource) == ("warning", "example.com/gone")
    assert one.reason == "the resource isn't configured any more, but a is held by n/p (c)"


@pytest.mark.parametrize(
    ("holder", "advice"),
    [
        (HolderStatus("n", "p$x", None, "c"), "delete the pod: kubectl delete pod --namespace n 'p$x'"),
        (HolderStatus(None, None, "uid", "c"), "plug it in again"),
    ],
)
def test_advice_about_a_lost_device(holder, advice):
    lost = resource(replace(SICK, lost=True, held=True, holders=(holder,)))
    (one,) = troubles(Path("/dp"), Reloads(NOW), THERE, ASKED, [lost])
    assert one.advice is not None
    assert one.advice.endswith(advice)


def test_outdated_container():
    holder = HolderStatus("n", "p", None, "c")
    one = DeviceStatus("a", "a", True, None, None, False, True, NOW, (holder,), (), {}, "was /dev/0: delete the pod")
    (found,) = troubles(Path("/dp"), Reloads(NOW), THERE, ASKED, [resource(one)])
    assert found.reason == "a, held by n/p: was /dev/0: delete the pod"
    assert found.advice == "delete the pod: kubectl delete pod --namespace n p"


@pytest.mark.parametrize(
    ("asked", "one", "advice"),
    [
        (replace(ASKED, failure="no answer"), resource(GOOD), "kubelet.pod_resources_socket"),
        (
            ASKED,
            replace(
                resource(failure=Failure("it isn't installed", NOW)), driver=DriverStatus("x", None, None, None, None)
            ),
            "`dpgateway drivers`",
        ),
        (ASKED, resource(failure=Failure("no bus", NOW)), "`dpgateway devices`"),
    ],
)
def test_advice(asked, one, advice):
    (found,) = troubles(Path("/dp"), Reloads(NOW), THERE, asked, [one])
    assert advice in (found.advice or "")
