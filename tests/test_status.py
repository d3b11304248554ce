"""What there is to know of the gateway, as one value."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from dpgateway.config import ResourceConfig, Timeouts
from dpgateway.status import Standing, report


def test_it_is_ready_when_all_are_started():
    started, other = Standing("a", started=True), Standing("b", started=False)
    assert report([started], kubelet=True).ready
    assert not report([started, other], kubelet=True).ready
    assert report([], kubelet=False).ready


@pytest.mark.parametrize(
    ("standings", "kubelet", "status"),
    [
        ([], False, "0 resources, waiting for a kubelet"),
        ([Standing("a", started=True, streaming=True)], True, "1 resource, 1 streaming"),
        (
            [Standing("a", started=True, streaming=True), Standing("b", started=True, failed=True)],
            True,
            "2 resources, 1 streaming, 1 failed: b",
        ),
        (
            [Standing("a", started=True, failed=True), Standing("b", started=True, failed=True)],
            False,
            "2 resources, waiting for a kubelet, 2 failed: a, ...",
        ),
    ],
)
def test_the_status_is_a_short_text(standings, kubelet, status):
    assert report(standings, kubelet=kubelet).text == status


@pytest.mark.parametrize(("seconds", "overdue"), [(10, 11), (58, 59), (59, 60), (600, 60)])
def test_a_resource_that_never_comes_holds_up_the_start_no_longer_than_its_list_may_take(seconds, overdue):
    config = ResourceConfig("example.com/a", "x", timeouts=Timeouts(list=timedelta(seconds=seconds)))
    for age, started in ((overdue - 0.1, False), (overdue, True)):
        assert Standing.of(config, None, age, directory=True) == Standing("example.com/a", started)


def plugin(*, served=True, listed=True, failure="", streaming=False) -> Any:
    """What is looked at of one."""
    return SimpleNamespace(
        served=served,
        failure=failure,
        inventory=SimpleNamespace(list=SimpleNamespace(value={} if listed else None)),
        registrar=SimpleNamespace(streaming=streaming),
    )


@pytest.mark.parametrize(
    ("one", "directory", "standing"),
    [
        (plugin(), True, Standing("a", started=True)),
        (plugin(streaming=True), True, Standing("a", started=True, streaming=True)),
        (plugin(served=False), True, Standing("a", started=False)),
        (plugin(served=False), False, Standing("a", started=True)),
        (plugin(listed=False), True, Standing("a", started=False)),
        (plugin(served=False, listed=False), False, Standing("a", started=False)),
        (plugin(listed=False, failure="no bus"), True, Standing("a", started=True, failed=True)),
        (plugin(failure="no bus", streaming=True), True, Standing("a", started=True, streaming=True, failed=True)),
    ],
)
def test_a_resource_is_started_once_it_is_served_and_listed_or_has_failed(one, directory, standing):
    assert Standing.of(ResourceConfig("a", "x"), one, 0.0, directory=directory) == standing
