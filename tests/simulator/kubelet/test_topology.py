from collections.abc import Sequence

import pytest

from dpgateway_simulator.kubelet.topology import Candidates, Hint, MissingDeviceError, hints, merge

NODES: dict[str, tuple[int, ...] | None] = {"a": (0,), "b": (1,), "c": (1,), "d": None}
BOTH = frozenset({0, 1})


def candidates(available: str, number: int, reusable: str = "", *, possible: bool = True) -> Candidates:
    return Candidates(NODES, frozenset(available), frozenset(reusable), number, possible=possible)


def found(some: Candidates, numa: Sequence[int]) -> set[tuple[tuple[int, ...], bool]]:
    return {(tuple(sorted(one.affinity or ())), one.preferred) for one in hints(some, numa, missing_crashes=False)}


def test_hints_prefer_smallest_sets() -> None:
    assert found(candidates("abc", 1), (0, 1)) == {((0,), True), ((1,), True), ((0, 1), False)}
    assert found(candidates("abc", 2), (0, 1)) == {((1,), True), ((0, 1), False)}
    assert found(candidates("abc", 3), (0, 1)) == {((0, 1), True)}
    assert found(candidates("ab", 2), (0, 1)) == {((0, 1), False)}, "b and c would do on one node, were c free"


def test_reusable_devices_must_be_within() -> None:
    assert found(candidates("bc", 2, "a"), (0, 1)) == {((0, 1), False)}


def test_hints_without_topology() -> None:
    plain = Candidates({"d": None}, frozenset("d"), frozenset(), 1)
    assert hints(plain, (0, 1), missing_crashes=True) == [Hint(None, preferred=True)]
    assert hints(candidates("a", 2, possible=False), (0, 1), missing_crashes=True) == [Hint(None, preferred=False)]


def test_unlisted_device_is_nil_pointer() -> None:
    with pytest.raises(MissingDeviceError):
        hints(candidates("az", 1), (0, 1), missing_crashes=True)
    assert hints(candidates("az", 1), (0, 1), missing_crashes=False)


one, other, wide = (Hint(frozenset(nodes), preferred=p) for nodes, p in (({0}, True), ({1}, True), (BOTH, False)))


@pytest.mark.parametrize(
    ("policy", "resources", "affinity", "admitted"),
    [
        ("best-effort", [[one, other, wide]], {0}, True),
        ("best-effort", [[wide]], BOTH, True),
        ("best-effort", [[wide], [Hint(frozenset({0}), preferred=False), wide]], BOTH, True),
        ("restricted", [[wide]], BOTH, False),
        ("restricted", [[one, wide], [other, wide]], {0}, False),
        ("restricted", [[one, other], [other]], {1}, True),
        ("single-numa-node", [[one, wide]], {0}, True),
        ("single-numa-node", [[wide]], None, False),
        ("single-numa-node", [[Hint(None, preferred=True)]], None, True),
        ("single-numa-node", [[Hint(None, preferred=False)]], None, False),
        ("restricted", [], BOTH, True),
    ],
)
def test_merging(policy: str, resources: list[list[Hint]], affinity: set[int] | None, admitted: bool) -> None:
    assert merge(policy, resources, (0, 1)) == (affinity, admitted)
