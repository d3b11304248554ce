"""Another device plugin with the same resource name shows in the ids that the kubelet lists."""

import pytest

from dpgateway.deviceplugin.registration.rival import LISTED_WITHIN, SETTLED, Listed, Rival

THING = "example.com/thing"
SINCE = 100.0
LATER = 100.0 + LISTED_WITHIN + 0.1


def look(rival, *registered, written=LATER, ours=("a", "b"), published=90.0, since=SINCE, now=LATER):
    before = rival.complaint.version
    rival.look(Listed(registered, written), Listed(ours, published), since, now)
    return rival.complaint.version != before


@pytest.fixture
def rival(log):
    return Rival(THING, log)


def test_ids_that_are_not_ours_are_another_plugins(rival):
    assert look(rival, "x0", "a", "x1", "x2", "x3")
    assert rival.complaint.value == (
        "another device plugin has registered example.com/thing: the kubelet lists ids that this gateway never "
        "offered: x0, x1, x2 and 1 more; stop it, or rename the resource of one of the two"
    )
    assert not look(rival, "x0", "a", "x1", "x2", "x3"), "it is said once"
    assert look(rival, "a")
    assert not rival.complaint.value


@pytest.mark.parametrize(
    "known",
    [
        {"written": 100.5},
        {"published": 101.0},
        {"ours": ("a", "x0")},
        {"since": None},
    ],
    ids=["an older checkpoint", "a list of just now", "ours", "not listed yet"],
)
def test_what_else_the_kubelet_may_list(rival, known):
    assert not look(rival, "a", "x0", **known)
    assert not rival.complaint.value


def test_our_registration_replaces_the_others(rival):
    look(rival, "x0")
    assert look(rival, "x0", written=LATER, since=LATER)
    assert not rival.complaint.value


def test_an_early_checkpoint_counts_later(rival):
    """It writes nothing more until the next Allocate, and that may be of the other plugin's device."""
    assert not look(rival, "x0", written=100.3)
    assert look(rival, "x0", written=100.3, now=100.0 + SETTLED + 0.1)
    assert "x0" in rival.complaint.value


@pytest.mark.parametrize("known", [{"written": 99.9}, {"published": 100.4}, {"published": 105.0}])
def test_what_was_written_before_our_list_never_counts(rival, known):
    assert not look(rival, "x0", **{"written": 100.3, "now": 1000.0} | known)
