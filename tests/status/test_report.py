"""What systemd is told of how each resource stands."""

import pytest

from dpgateway.status import report
from dpgateway.status.values import Failure, Registration, Reloads, Standing


def standing(name, *, started=True, streaming=False, failed=False):
    registration = Registration(
        "away", None, registered=False, streaming=streaming, listed=streaming, api=None, failure=None
    )
    return Standing(name, started, registration, Failure("no bus", None) if failed else None)


def test_it_is_ready_when_all_are_started():
    started, other = standing("a"), standing("b", started=False)
    assert report([started], kubelet=True).ready
    assert not report([started, other], kubelet=True).ready
    assert report([], kubelet=False).ready


@pytest.mark.parametrize(
    ("standings", "kubelet", "status"),
    [
        ([], False, "0 resources, waiting for a kubelet"),
        ([standing("a", streaming=True)], True, "1 resource, 1 streaming"),
        ([standing("a", streaming=True), standing("b", failed=True)], True, "2 resources, 1 streaming, 1 failed: b"),
        (
            [standing("a", failed=True), standing("b", failed=True)],
            False,
            "2 resources, waiting for a kubelet, 2 failed: a, ...",
        ),
    ],
)
def test_the_status_is_a_short_text(standings, kubelet, status):
    assert report(standings, kubelet=kubelet).text == status


def test_a_configuration_that_was_refused_is_told_until_one_is_taken_over():
    refused = Reloads("1").refuse("2", ["one thing"])
    taken = refused.took_over("3")
    assert report([], refused.refusal, kubelet=False).text.endswith(", the new configuration is refused")
    assert report([], taken.refusal, kubelet=False).text == "0 resources, waiting for a kubelet"
