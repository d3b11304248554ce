"""Shared hardware as counters, within the limits of the API."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dpgateway.dra.slices.counters import MOST_CONSUMED, MOST_COUNTERS, counters
from dpgateway.dra.slices.names import label

BEHIND = st.dictionaries(
    st.integers(0, 60).map("d{}".format), st.frozensets(st.integers(0, 90).map("hw {}".format), max_size=4), max_size=60
)


def test_hardware_of_one_device_needs_no_counter() -> None:
    assert counters({"a": frozenset({"x"}), "b": frozenset({"y"})}).sets == ()


def test_two_functions_of_one_board() -> None:
    board = label("board 1")
    made = counters({"net": frozenset({"board 1"}), "crypto": frozenset({"board 1"})})
    assert made.sets == ({"name": board, "counters": {board: {"value": "1"}}},)
    use = [{"counterSet": board, "counters": {board: {"value": "1"}}}]
    assert made.consumed == {"net": use, "crypto": use}


def test_small_groups_share_a_set() -> None:
    pairs = {f"{n}{x}": frozenset({f"h{n}"}) for n in range(33) for x in "ab"}
    assert [len(_of(one)) for one in counters(pairs).sets] == [32, 1]


def test_a_device_over_too_many_sets_is_withheld() -> None:
    wide = frozenset(f"h{n:02}" for n in range(65))
    made = counters({"a": wide, "b": wide, "c": frozenset({"own"})})
    assert made.withheld == {"a", "b"}
    assert len(made.obstacles) == 1
    assert made.consumed == {}


@given(BEHIND)
def test_the_counters_exclude_exactly_what_shares_hardware(behind: dict[str, frozenset[str]]) -> None:
    made = counters(behind)
    names = [str(one["name"]) for one in made.sets]
    assert len(names) == len(set(names))
    assert all(0 < len(_of(one)) <= MOST_COUNTERS for one in made.sets)
    assert all(len(uses) <= MOST_CONSUMED for uses in made.consumed.values())
    consumed = {id_: _used(made.consumed.get(id_, ())) for id_ in behind}
    there = {(str(one["name"]), counter) for one in made.sets for counter in _of(one)}
    assert all(used <= there for used in consumed.values())
    published = [id_ for id_ in behind if id_ not in made.withheld]
    for one in published:
        for other in published:
            if one != other:
                assert bool(behind[one] & behind[other]) == bool(consumed[one] & consumed[other])


def _of(one: Any) -> dict[str, object]:
    found: dict[str, object] = one["counters"]
    return found


def _used(uses: Any) -> set[tuple[str, str]]:
    return {(use["counterSet"], name) for use in uses for name in use["counters"]}
