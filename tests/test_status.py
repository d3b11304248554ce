"""What there is to know of the gateway, as one value."""

import pytest

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
