"""How the parts of the gateway are, as values."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from dpgateway.config import ResourceConfig, Timeouts
from dpgateway.deviceplugin.registration.lifecycle import State
from dpgateway.deviceplugin.registration.standing import Standing
from dpgateway.model import Device
from dpgateway.node.holders import Holder
from dpgateway.node.holdings import Holdings
from dpgateway.resource.ledger import Ledger
from dpgateway.status.snapshot import Devices, release, standing


@pytest.mark.parametrize(("seconds", "overdue"), [(10, 11), (58, 59), (59, 60), (600, 60)])
def test_a_resource_that_never_comes_holds_up_the_start_no_longer_than_its_list_may_take(seconds, overdue):
    config = ResourceConfig("example.com/a", "x", timeouts=Timeouts(list=timedelta(seconds=seconds)))
    for age, started in ((overdue - 0.1, False), (overdue, True)):
        found = standing(config, None, age, directory=True)
        assert (found.name, found.started, found.registration.state) == ("example.com/a", started, "unready")


def plugin(*, served=True, listed=True, failure="", state=State.AWAY) -> Any:
    """What is looked at of one."""
    streaming = state is State.SERVING
    registered = state in {State.EXPECTING, State.SERVING}
    api = "v1beta1" if registered else None
    where = Standing(state, registered=registered, streaming=streaming, listed=streaming, api=api)
    return SimpleNamespace(
        served=served,
        stranger="",
        failure=failure,
        failed_since=0.0,
        elsewhere="",
        inventory=SimpleNamespace(list=SimpleNamespace(value={} if listed else None)),
        registrar=SimpleNamespace(standing=SimpleNamespace(value=where)),
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


@pytest.mark.parametrize(
    ("api", "pod_resources", "told"),
    [
        (None, None, None),
        ("v1alpha1", None, "1.8"),
        ("v1alpha2", None, "1.9"),
        ("v1beta1", None, "1.10 or later"),
        ("v1beta1", "v1alpha1", "1.13 to 1.19"),
        ("v1beta1", "v1", "1.20 or later"),
    ],
)
def test_a_kubelets_release_is_told_as_far_as_its_apis_tell_it(api, pod_resources, told):
    assert release(api, pod_resources) == told


class TestDevices:
    @pytest.fixture
    def one(self) -> Any:
        """What is looked at of a plugin whose devices are ``a`` and ``b``."""
        ledger = Ledger(1, 10)
        ledger.take([Device("a"), Device("b")], 100)
        inventory = SimpleNamespace(ledger=ledger, list=SimpleNamespace(value=ledger.offers()))
        return SimpleNamespace(inventory=inventory, outdated={})

    def test_they_are_looked_at_again_when_the_list_is_another_one(self, one):
        devices, holdings = Devices(), Holdings()
        devices.look(one, holdings)
        before = devices.all
        devices.look(one, holdings)
        assert devices.all is before
        one.inventory.ledger.fail("no answer", 101)
        one.inventory.list.value = one.inventory.ledger.offers()
        devices.look(one, holdings)
        assert [device.reason for device in devices.all] == ["no answer"] * 2
        assert (devices.counts.listed, devices.counts.healthy) == (2, 0)

    def test_they_are_looked_at_again_when_a_container_is_outdated(self, one):
        devices, holdings = Devices(), Holdings()
        devices.look(one, holdings)
        one.outdated = {"a": "this container was given /dev/0, and it is /dev/1 now"}
        devices.look(one, holdings)
        assert [device.outdated for device in devices.all] == [one.outdated["a"], None]

    def test_they_are_looked_at_again_when_somebody_else_holds_one_and_not_when_that_is_only_said_again(self, one):
        devices, holder = Devices(), Holder("team", "encoder-0", "main")
        holdings = Holdings().noted({}, 0.0, 0.0).began(("a",)).gave(("a",), 1.0)
        devices.look(one, holdings)
        assert [device.held for device in devices.all] == [True, False]
        named = holdings.heard({"a": holder}, 2.0)
        devices.look(one, named)
        before = devices.all
        assert [(held.pod, held.container) for held in before[0].holders] == [("encoder-0", "main")]
        devices.look(one, named.heard({"a": holder}, 3.0))
        assert devices.all is before
        devices.look(one, named.heard({"a": Holder("team", "other", "main")}, 3.0))
        assert devices.all[0].holders[0].pod == "other"
