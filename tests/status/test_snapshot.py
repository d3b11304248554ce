"""How the parts of the gateway are, as values."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from dpgateway.config import ResourceConfig, Timeouts
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.kit.observable import Observable
from dpgateway.model import Device
from dpgateway.node.holders import Holder
from dpgateway.resource.ledger import Ledger
from dpgateway.resource.standing import Standing
from dpgateway.status.snapshot import Devices, release, resource
from tests.support.resources import configured


@pytest.mark.parametrize(("seconds", "overdue"), [(10, 11), (58, 59), (59, 60), (600, 60)])
def test_start_of_a_resource_that_never_comes(seconds, overdue):
    """It holds the gateway's start up for no longer than its list may take."""
    config = ResourceConfig("example.com/a", "x", timeouts=Timeouts(list=timedelta(seconds=seconds)))
    for age, started in ((overdue - 0.1, False), (overdue, True)):
        found = resource(config, None, age, directory=True)
        assert (found.name, found.started, found.registrations[0].state) == ("example.com/a", started, "unready")


def plugin(*, served=True, listed=True, failure="", streaming=False, **others) -> Any:
    """What a snapshot reads of one."""
    standing = Standing("deviceplugin", "serving", streaming=streaming, listed=streaming)
    resource = SimpleNamespace(
        failed_since=0.0,
        unsaved="",
        elsewhere=Observable(others.get("elsewhere", "")),
        served=served,
        failure=failure,
        driver=SimpleNamespace(
            state=SimpleNamespace(value=SimpleNamespace(devices=None, listed_at=None, failure="", error=""))
        ),
        inventory=SimpleNamespace(list=SimpleNamespace(value={} if listed else None)),
    )
    return SimpleNamespace(
        rival=Observable(others.get("rival", "")),
        refused=Observable(others.get("refused")),
        resource=resource,
        standing=SimpleNamespace(value=standing),
    )


@pytest.mark.parametrize(
    ("one", "directory", "started", "streaming", "failure"),
    [
        (plugin(), True, True, False, None),
        (plugin(streaming=True), True, True, True, None),
        (plugin(served=False), True, False, False, None),
        (plugin(served=False), False, True, False, None),
        (plugin(listed=False), True, False, False, None),
        (plugin(served=False, listed=False), False, False, False, None),
        (plugin(listed=False, failure="no bus"), True, True, False, "no bus"),
        (plugin(failure="no bus", streaming=True), True, True, True, "no bus"),
    ],
)
def test_started_once_listed_or_failed(one, directory, started, streaming, failure):
    found = resource(ResourceConfig("a", "x"), one, 0.0, directory=directory)
    assert (found.started, found.registrations[0].streaming) == (started, streaming)
    assert (found.failure and found.failure.reason) == failure


@pytest.mark.parametrize("others", [{"elsewhere": "another gateway serves it"}, {"rival": "another plugin's"}])
def test_what_the_registrar_does_not_know(others):
    (found,) = resource(ResourceConfig("a", "x"), plugin(**others), 0.0, directory=True).registrations
    assert found.failure == next(iter(others.values()))


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
def test_release_of_a_kubelet_from_its_apis(api, pod_resources, told):
    assert release(api, pod_resources) == told


class TestDevices:
    @pytest.fixture
    def one(self) -> Any:
        """What is looked at of a plugin whose devices are ``a`` and ``b``."""
        ledger = Ledger(Observable(configured(keep_lost=10)))
        ledger.take([Device("a"), Device("b")], 100)
        inventory = SimpleNamespace(ledger=ledger, list=SimpleNamespace(value=ledger.offers()))
        return SimpleNamespace(resource=SimpleNamespace(inventory=inventory), outdated=Observable({}))

    def test_anew_after_another_list(self, one):
        devices, holdings = Devices(), Holdings()
        devices.look(one, holdings)
        before = devices.all
        devices.look(one, holdings)
        assert devices.all is before
        one.resource.inventory.ledger.fail("no answer", 101)
        one.resource.inventory.list.value = one.resource.inventory.ledger.offers()
        devices.look(one, holdings)
        assert [device.reason for device in devices.all] == ["no answer"] * 2
        assert (devices.counts.listed, devices.counts.healthy) == (2, 0)

    def test_anew_after_an_outdated_container(self, one):
        devices, holdings = Devices(), Holdings()
        devices.look(one, holdings)
        one.outdated.value = {"a": "this container was given /dev/0, and it is /dev/1 now"}
        devices.look(one, holdings)
        assert [device.outdated for device in devices.all] == [one.outdated.value["a"], None]

    def test_anew_after_another_holder_only(self, one):
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

    def test_what_the_other_front_gave_is_held(self, one):
        devices, holder = Devices(), Holder("team", "encoder-0", "main")
        before = Holdings().noted({}, 0.0, 0.0).began(("a",)).gave(("a",), 1.0).heard({"a": holder}, 2.0)
        devices.look(one, Holdings(), before)
        assert [[held.pod for held in device.holders] for device in devices.all] == [["encoder-0"], []]
        assert (devices.counts.held, devices.counts.free) == (1, 1)
        devices.look(one, Holdings())
        assert devices.counts.held == 0
