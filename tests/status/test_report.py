"""What systemd is told of how each resource stands."""

import pytest

from dpgateway.resource.standing import Standing
from dpgateway.status import Reloads, ResourceStatus, report
from dpgateway.status.values import DriverStatus, Failure


def resource(name, *, started=True, streaming=False, failed=False):
    standing = Standing("deviceplugin", "away", streaming=streaming, listed=streaming)
    failure = Failure("no bus", None) if failed else None
    return ResourceStatus(name, started, (standing,), failure, DriverStatus("x", "1", None, None, None))


def test_ready_when_all_are_started():
    started, other = resource("a"), resource("b", started=False)
    assert report([started], kubelet=True).ready
    assert not report([started, other], kubelet=True).ready
    assert report([], kubelet=False).ready


@pytest.mark.parametrize(
    ("resources", "kubelet", "status"),
    [
        ([], False, "0 resources, waiting for a kubelet"),
        ([resource("a", streaming=True)], True, "1 resource, 1 streaming"),
        ([resource("a", streaming=True), resource("b", failed=True)], True, "2 resources, 1 streaming, 1 failed: b"),
        (
            [resource("a", failed=True), resource("b", failed=True)],
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
    assert report([], refused.refusal, kubelet=False).text.endswith(", the new configuration is refused")
    assert report([], taken.refusal, kubelet=False).text == "0 resources, waiting for a kubelet"
