"""The answer is compared with the best of all possible answers, found by trying every one."""

import itertools
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway.deviceplugin.placement import best_ids
from dpgateway.deviceplugin.values import Preference
from dpgateway.model import Device, Health
from dpgateway.resource.shares import share_ids

NODES = st.sampled_from([(), (0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])


@st.composite
def questions(draw):
    """Up to five devices with up to three shares, some of them free, some that must be included."""
    shares = draw(st.integers(1, 3))
    devices = [Device(f"d{i}", numa_nodes=draw(NODES)) for i in range(draw(st.integers(0, 5)))]
    meaning = {offered: device for device in devices for offered in share_ids(device.id, shares)}
    available = draw(st.permutations(sorted(meaning)))[: draw(st.integers(0, 8))]
    must = draw(st.permutations(sorted(available)))[: draw(st.integers(0, 2))]
    return Preference(tuple(available), tuple(must), draw(st.integers(0, 6))), meaning


def repeats(chosen, meaning):
    return len(chosen) - len({meaning[offered].id for offered in chosen})


def near(chosen, meaning):
    return {node for offered in chosen for node in meaning[offered].numa_nodes}


def ranks(request, meaning, order):
    """The place of each free device: by its number of free shares, then by its id."""
    free = [meaning[offered].id for offered in set(request.available) - set(request.must_include)]
    sign = 1 if order == "packed" else -1
    ranked = sorted(set(free), key=lambda device: (sign * free.count(device), device))
    return {device: place for place, device in enumerate(ranked)}


def every_answer(request):
    rest = sorted(set(request.available) - set(request.must_include))
    for some in itertools.combinations(rest, request.size - len(request.must_include)):
        yield (*request.must_include, *some)


@pytest.mark.parametrize("order", ["packed", "spread"])
@given(question=questions())
@settings(deadline=None, max_examples=100)
def test_no_other_answer_is_better(order, question):
    request, meaning = question
    answer = best_ids(request, meaning.get, order)
    must = request.must_include
    if not len(must) <= request.size <= len(request.available):
        assert answer == ()
        return
    assert len(set(answer)) == len(answer) == request.size
    assert set(must) <= set(answer) <= set(request.available)

    def score(chosen):
        return repeats(chosen, meaning), len(near(chosen, meaning))

    best = min(map(score, every_answer(request)))
    assert score(answer) == best
    if best[0] == 0:  # the order is between devices; which of them is taken twice is another matter
        rank = ranks(request, meaning, order)

        def places(chosen):
            return sorted(rank[meaning[offered].id] for offered in set(chosen) - set(must))

        assert places(answer) == min(places(other) for other in every_answer(request) if score(other) == best)


@given(question=questions())
@settings(deadline=None)
def test_the_kubelets_order_is_no_matter(question):
    request, meaning = question
    backwards = Preference(request.available[::-1], request.must_include[::-1], request.size)
    forth, back = (best_ids(one, meaning.get, "packed") for one in (request, backwards))
    assert set(forth) == set(back)


def shared(**free):
    """Devices with that many free shares each."""
    meaning = {offered: Device(name) for name, count in free.items() for offered in share_ids(name, count)}
    return meaning, tuple(meaning)


def test_packed_fills_and_spread_empties():
    meaning, available = shared(full=1, half=2, empty=4)
    assert best_ids(Preference(available, (), 2), meaning.get, "packed") == ("full", "half")
    assert best_ids(Preference(available, (), 2), meaning.get, "spread") == ("empty", "half")


def test_of_equals_the_first_id_is_taken():
    meaning, available = shared(c=2, a=2, b=2)
    assert best_ids(Preference(available[::-1], (), 2), meaning.get, "spread") == ("a", "b")


def test_shares_repeat_when_devices_run_out():
    meaning, available = shared(a=3, b=3)
    assert best_ids(Preference(available, (), 5), meaning.get, "packed") == ("a", "b", "a::1", "b::1", "a::2")


def test_an_included_ids_device_comes_last():
    meaning, available = shared(a=2, b=2, c=2)
    assert best_ids(Preference(available, ("a::1",), 3), meaning.get, "packed") == ("a::1", "b", "c")


def test_distinct_devices_matter_more_than_one_node():
    meaning = {"a": Device("a", numa_nodes=(0,)), "b": Device("b", numa_nodes=(1,))}
    meaning["a::1"] = meaning["a"]
    assert set(best_ids(Preference(("a", "a::1", "b"), (), 2), meaning.get, "packed")) == {"a", "b"}


def test_a_node_that_must_be_used_costs_nothing():
    meaning = {name: Device(name, numa_nodes=nodes) for name, nodes in {"a": (1,), "b": (0,), "c": (1,)}.items()}
    assert best_ids(Preference(("a", "b", "c"), ("a",), 2), meaning.get, "packed") == ("a", "c")


def test_a_device_near_no_node_suits_all():
    meaning = {"a": Device("a", numa_nodes=(0,)), "b": Device("b", numa_nodes=(1,)), "c": Device("c")}
    assert best_ids(Preference(("a", "b", "c"), (), 2), meaning.get, "packed") == ("a", "c")


def test_unusable_devices_are_taken_last():
    meaning = {"bad": Device("bad", Health.unhealthy("wet")), "good": Device("good", numa_nodes=(1,))}
    assert best_ids(Preference(("bad", "gone", "good"), (), 1), meaning.get, "packed") == ("good",)
    assert set(best_ids(Preference(("bad", "gone", "good"), (), 3), meaning.get, "packed")) == {"bad", "gone", "good"}
    assert best_ids(Preference(("gone", "good"), ("gone",), 2), meaning.get, "packed") == ("gone", "good")


def test_an_id_that_is_named_twice_is_there_once():
    meaning, _ = shared(a=1)
    assert best_ids(Preference(("a", "a"), (), 2), meaning.get, "packed") == ()
    assert best_ids(Preference(("a", "a"), ("a", "a"), 1), meaning.get, "packed") == ("a",)


@given(
    size=st.integers(0, 40),
    must=st.integers(0, 3),
    nodes=st.lists(st.sets(st.integers(0, 20), max_size=3), min_size=40, max_size=40),
)
@settings(deadline=None, max_examples=60)
def test_with_many_nodes_it_is_still_an_answer(size, must, nodes):
    meaning = {f"d{i}": Device(f"d{i}", numa_nodes=tuple(near)) for i, near in enumerate(nodes)}
    request = Preference(tuple(meaning), tuple(meaning)[:must], size)
    answer = best_ids(request, meaning.get, "packed")
    assert len(set(answer)) == (size if size >= must else 0)
    assert set(answer) <= set(meaning)
    assert not answer or set(request.must_include) <= set(answer)


def test_one_sufficient_node_of_many_is_found():
    meaning = {f"d{i}": Device(f"d{i}", numa_nodes=(i % 10,)) for i in range(50)}
    answer = best_ids(Preference(tuple(meaning), ("d7",), 5), meaning.get, "packed")
    assert near(answer, meaning) == {7}


def steps(function):
    """How many lines of Python ``function`` runs, those of a loop each time: no other work on the machine counts."""
    count, before = 0, sys.gettrace()

    def trace(*_):
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("size", [8, 999])
@pytest.mark.parametrize("nodes", [1, 6, 64, 1000])
def test_work_grows_linearly_with_ids(nodes, size):
    meaning = {f"d{i:04}": Device(f"d{i:04}", numa_nodes=(i % nodes,)) for i in range(1000)}
    request = Preference(tuple(meaning), (), size)
    answer = best_ids(request, meaning.get, "packed")
    assert len(answer) == size
    assert steps(lambda: best_ids(request, meaning.get, "packed")) < 500 * len(
        meaning
    )  # 350; quadratic work takes 1,000
