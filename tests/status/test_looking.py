"""How the parts of the gateway are, as values."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from dpgateway.config import ResourceConfig, Timeouts
from dpgateway.deviceplugin.registration.lifecycle import State
from dpgateway.status.looking import standing


@pytest.mark.parametrize(("seconds", "overdue"), [(10, 11), (58, 59), (59, 60), (600, 60)])
def test_a_resource_that_never_comes_holds_up_the_start_no_longer_than_its_list_may_take(seconds, overdue):
    config = ResourceConfig("example.com/a", "x", timeouts=Timeouts(list=timedelta(seconds=seconds)))
    for age, started in ((overdue - 0.1, False), (overdue, True)):
        found = standing(config, None, age, directory=True)
        assert (found.name, found.started, found.registration.state) == ("example.com/a", started, "unready")


def plugin(*, served=True, listed=True, failure="", state=State.AWAY) -> Any:
    """What is looked at of one."""
    registrar = SimpleNamespace(standing=SimpleNamespace(value=(state, 0.0)), complaint="")
    registrar.streaming = registrar.listed = state is State.SERVING
    return SimpleNamespace(
        api="v1beta1",
        served=served,
        failure=failure,
        failed_since=0.0,
        inventory=SimpleNamespace(list=SimpleNamespace(value={} if listed else None)),
        registrar=registrar,
    )


@pytest.mark.parametrize(
    ("one", "directory", "started", "streaming", "failure"),
    [
        (plugin(), True, True, False, None),
        (plugin(state=State.SERVING), True, True, True, None),
        (plugin(served=False), True, False, False, None),
        (plugin(served=False), False, True, False, None),
        (plugin(listed=False), True, False, False, None),
        (plugin(served=False, listed=False), False, False, False, None),
        (plugin(listed=False, failure="no bus"), True, True, False, "no bus"),
        (plugin(failure="no bus", state=State.SERVING), True, True, True, "no bus"),
    ],
)
def test_a_resource_is_started_once_it_is_served_and_listed_or_has_failed(one, directory, started, streaming, failure):
    found = standing(ResourceConfig("a", "x"), one, 0.0, directory=directory)
    assert (found.started, found.registration.streaming) == (started, streaming)
    assert (found.failure and found.failure.reason) == failure


@pytest.mark.parametrize(
    ("state", "registered"), [(State.AWAY, False), (State.REGISTERING, False), (State.EXPECTING, True)]
)
def test_it_is_registered_with_the_present_kubelet_once_that_accepted_it(state, registered):
    found = standing(ResourceConfig("a", "x"), plugin(state=state), 0.0, directory=True).registration
    assert (found.state, found.registered, found.api) == (state.value, registered, "v1beta1" if registered else None)
