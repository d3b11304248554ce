"""Which front a group is to have: tables of single cases, and what holds for all facts and histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgateway.switching.choosing import (
    BETWEEN,
    HOLD,
    REGISTRATION_LASTS,
    RIGHTS_LAST,
    SETTLED,
    ChosenFront,
    FrontChoice,
    Group,
    choose,
    obstacles,
)
from dpgateway.switching.facts import DraFacts, Fact
from tests.support.resources import NAME, configured

POOL = f"n1/{NAME}"
GROUP = Group((NAME,), pool=POOL)
NOW = 10_000.0
YES, NO, UNSURE = Fact(True, since=1.0), Fact(False, "it is missing", since=NOW), Fact(None, "nobody says")
ALL = DraFacts(YES, YES, YES, YES, {POOL: YES}, {NAME: YES}, {})


def with_(**facts: Any) -> DraFacts:
    """All is true but these; ``fields`` and ``classes`` are of the group's pool and resource."""
    facts |= {"fields": {POOL: facts["fields"]}} if "fields" in facts else {}
    facts |= {"classes": {NAME: facts["classes"]}} if "classes" in facts else {}
    return replace(ALL, **facts)


def test_all_is_true() -> None:
    assert choose(ALL, GROUP, "deviceplugin", NOW) == FrontChoice("dra", "all that DRA needs is there")
    assert choose(ALL, GROUP, "dra", NOW) == FrontChoice("dra", "all that DRA needs is there")


def test_what_has_just_become_true_has_to_last() -> None:
    facts = with_(classes=Fact(True, since=NOW - SETTLED + 0.5))
    found = choose(facts, GROUP, "deviceplugin", NOW)
    assert (found.front, found.again) == ("deviceplugin", NOW + 0.5)
    assert choose(facts, GROUP, "deviceplugin", NOW + 0.5).front == "dra"


@pytest.mark.parametrize("name", ["registered", "node", "slices", "rights", "fields", "classes"])
@pytest.mark.parametrize("front", ["dra", "deviceplugin"])
def test_what_is_unknown_changes_nothing(name: str, front: ChosenFront) -> None:
    found = choose(with_(**{name: UNSURE}), GROUP, front, NOW)
    assert (found.front, found.unknown, found.obstacles, found.again) == (front, ("nobody says",), (), None)
    assert found.because.endswith("nobody says")


def test_classes_that_werent_listed_are_unknown() -> None:
    for facts in (replace(ALL, classes=None), replace(ALL, classes={"example.com/other": YES})):
        (text,) = choose(facts, GROUP, "dra", NOW).unknown
        assert NAME in text


def test_a_pool_of_which_nothing_is_said_may_go_to_dra() -> None:
    assert choose(replace(ALL, fields={}), GROUP, "deviceplugin", NOW).front == "dra"


@pytest.mark.parametrize(
    ("name", "lasts"),
    [
        ("node", 0.0),
        ("slices", RIGHTS_LAST),
        ("rights", RIGHTS_LAST),
        ("fields", RIGHTS_LAST),
        ("classes", RIGHTS_LAST),
        ("registered", REGISTRATION_LASTS),
    ],
)
def test_what_is_false_takes_it_off_dra(name: str, lasts: float) -> None:
    facts = with_(**{name: NO})
    found = choose(facts, GROUP, "deviceplugin", NOW)
    assert (found.front, found.because, found.obstacles) == ("deviceplugin", NO.text, (NO.text,))
    if lasts:
        found = choose(facts, GROUP, "dra", NOW)
        assert (found.front, found.obstacles, found.again) == ("dra", (NO.text,), NOW + lasts)
        assert choose(facts, GROUP, "dra", NOW + lasts - 0.1).front == "dra"
    found = choose(facts, GROUP, "dra", NOW + lasts)
    assert (found.front, found.because, found.again) == ("deviceplugin", NO.text, None)


def test_the_first_to_have_lasted_is_the_reason() -> None:
    facts = with_(registered=NO, classes=Fact(False, "no class", since=NOW - 10))
    found = choose(facts, GROUP, "dra", NOW)
    assert (found.again, found.because) == (NOW + 20, "it stays on DRA for a moment: no class")


def test_one_class_of_a_group_is_enough_to_keep_it_off() -> None:
    facts = replace(ALL, classes={NAME: YES, "example.com/other": NO})
    assert choose(facts, Group((NAME, "example.com/other"), pool=POOL), "deviceplugin", NOW).obstacles == (NO.text,)


def test_an_old_kubelet_waits_for_nothing() -> None:
    """Not for what isn't known either: one without DRA never registers the driver."""
    facts = with_(node=NO, registered=UNSURE)
    assert choose(facts, GROUP, "dra", NOW, [NOW - 1]).front == "deviceplugin"


def test_what_may_not_be_read_isnt_unknown() -> None:
    facts = replace(with_(rights=Fact(False, "no right", since=NOW - RIGHTS_LAST), node=UNSURE), classes=None)
    found = choose(facts, GROUP, "dra", NOW)
    assert (found.front, found.because, found.unknown) == ("deviceplugin", "no right", ())


def test_what_the_configuration_says_counts_at_once() -> None:
    group = GROUP._replace(obstacles=("annotations",))
    fronts: tuple[ChosenFront, ...] = "dra", "deviceplugin"
    for front in fronts:
        found = choose(ALL, group, front, NOW)
        assert (found.front, found.because, found.obstacles) == ("deviceplugin", "annotations", ("annotations",))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, []),
        ({"cdi": "always"}, []),
        ({"cdi": "never"}, ["cdi: never"]),
        ({"cdi": "never", "annotations": {"a": "b"}}, ["annotations", "cdi: never"]),
    ],
)
def test_obstacles_in_the_configuration(config: dict[str, Any], said: list[str]) -> None:
    found = obstacles(configured(**config))
    assert len(found) == len(said)
    assert all(text.startswith(part) and NAME in text for text, part in zip(found, said, strict=True))


class TestDamping:
    def test_one_change_a_minute(self) -> None:
        cases: list[tuple[DraFacts, ChosenFront]] = [(ALL, "deviceplugin"), (with_(classes=Fact(False, "none")), "dra")]
        for facts, front in cases:
            found = choose(facts, GROUP, front, NOW, [NOW - BETWEEN + 1])
            assert (found.front, found.again, found.flaps) == (front, NOW + 1, False)
            assert choose(facts, GROUP, front, NOW + 1, [NOW - BETWEEN + 1]).front != front

    def test_too_many_changes_keep_it_on_the_device_plugin(self) -> None:
        changes = [NOW - 500, NOW - 300, NOW - 70]
        found = choose(ALL, GROUP, "deviceplugin", NOW, changes)
        assert (found.front, found.flaps, found.again) == ("deviceplugin", True, NOW - 70 + HOLD)
        assert "changed 3 times within 10 minutes" in found.because
        found = choose(ALL, GROUP, "deviceplugin", NOW - 70 + HOLD, changes)
        assert (found.front, found.flaps) == ("dra", False)

    def test_and_take_it_there(self) -> None:
        changes = [NOW - 500, NOW - 300, NOW - 50]
        found = choose(ALL, GROUP, "dra", NOW, changes)
        assert (found.front, found.flaps, found.again) == ("dra", True, NOW + 10)
        found = choose(ALL, GROUP, "dra", NOW + 10, changes)
        assert (found.front, found.flaps) == ("deviceplugin", True)
        assert "changed 3 times" in found.because

    def test_as_many_over_a_longer_time_dont(self) -> None:
        assert choose(ALL, GROUP, "deviceplugin", NOW, [NOW - 701, NOW - 300, NOW - 100]).front == "dra"

    def test_changes_of_an_earlier_boot_dont_count(self) -> None:
        assert choose(ALL, GROUP, "deviceplugin", NOW, [NOW + 1, NOW + 2, NOW + 3]).front == "dra"


FACTS = st.builds(
    Fact,
    st.sampled_from([True, True, True, False, None]),
    st.sampled_from(["", "a reason"]),
    st.floats(0, NOW),
)
SOME = st.builds(
    DraFacts,
    FACTS,
    FACTS,
    FACTS,
    FACTS,
    st.one_of(st.just({}), st.builds(lambda one: {POOL: one}, FACTS)),
    st.one_of(st.none(), st.builds(lambda one: {NAME: one}, FACTS)),
    st.none(),
)
GROUPS = st.sampled_from([GROUP, GROUP, GROUP._replace(obstacles=("annotations",))])
FRONTS = st.sampled_from(["dra", "deviceplugin"])
CHANGES = st.lists(st.floats(NOW - 1.5 * HOLD, NOW + 10), max_size=6)


@given(SOME, GROUPS, FRONTS, CHANGES)
def test_what_holds_for_all_choices(facts: DraFacts, group: Group, front: ChosenFront, changes: list[float]) -> None:
    found = choose(facts, group, front, NOW, changes)
    classes = facts.classes or {NAME: Fact(None)}
    needs = [facts.registered, facts.node, facts.slices, facts.rights, *facts.fields.values(), *classes.values()]
    moved, known = found.front != front, {one.value for one in needs}
    if moved and found.front == "dra":
        assert known == {True}
        assert not group.obstacles
        assert not found.flaps
    if moved and found.front == "deviceplugin":
        assert False in known or group.obstacles or found.flaps
    if moved and facts.node.value is not False:
        assert not [at for at in changes if NOW - BETWEEN < at <= NOW]
        assert not found.unknown
    # Whoever waits learns how long, and it is known then.
    assert found.because
    assert found.again is None or found.again > NOW
    if found.again is not None:
        assert not moved
        assert choose(facts, group, front, found.again, changes) != found
    assert all((*found.obstacles, *found.unknown))


@given(st.lists(st.tuples(st.floats(0, 90), SOME), max_size=30))
def test_a_life_of_a_group(steps: list[tuple[float, DraFacts]]) -> None:
    """Its changes as they come: never two in a minute, but for the node's sake; never four in ten minutes to DRA."""
    now, front, changes = NOW, "deviceplugin", list[float]()
    for seconds, facts in steps:
        now += seconds
        found = choose(facts, GROUP, front, now, changes[-4:])  # type: ignore[arg-type]
        if found.front == front:
            continue
        if not (facts.node.value is False and front == "dra"):
            assert not changes or now - changes[-1] >= BETWEEN
        if found.front == "dra":
            assert len([at for at in changes if now - at <= 600]) < 3
        front = found.front
        changes.append(now)
