"""What a kubelet has struck: its pod may run still, and somebody is asked."""

import pytest

from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.resource.front import NOTED_WITHIN, Unreleased
from tests.support.notes import note_of

NOW = 1_700_000_000.0


def test_an_id_is_free_once_nothing_of_its_pod_runs():
    had = note_of(a="p", b="q")
    holdings = Holdings().remembered({}).new_kubelet(NOW - 1, "k").told(frozenset(), frozenset()).noted(had, NOW, NOW)
    struck, both = holdings.noted({}, NOW + 1, NOW + 1), frozenset({"p", "q"})
    assert struck.freed == frozenset()
    assert struck.taken == {"a", "b"}
    assert struck.told(frozenset({"p"}), both).freed == {"b"}
    assert struck.told(frozenset(), both).freed == {"a", "b"}
    assert not struck.told(frozenset(), both).only_gave_since(struck)
    assert struck.told(frozenset(), frozenset({"q"})).freed == {"b"}, "nobody has asked about the other pod"
    assert struck.ended(frozenset({"p"})).freed == {"a"}


def test_an_id_is_free_if_no_runtime_tells():
    holdings = Holdings().remembered({}).new_kubelet(NOW - 1, "k").noted(note_of(a="p"), NOW, NOW)
    struck = holdings.noted({}, NOW + 1, NOW + 1)
    assert struck.freed == {"a"}
    assert struck.told(None, frozenset({"p"})).freed == {"a"}


def test_a_static_pod_that_was_started_again_hasn_t_what_it_had():
    """It has the uid that it had."""
    holdings = Holdings().remembered({}).new_kubelet(NOW - 1, "k").noted(note_of(a="p"), NOW, NOW)
    struck, runs = holdings.noted({}, NOW + 1, NOW + 1), frozenset({"p"})
    again = struck.told(runs, runs).noted(note_of(b="p"), NOW + 2, NOW + 2)
    assert struck.told(runs, runs).freed == frozenset()
    assert again.told(runs, runs).freed == {"a"}


def test_a_runtime_that_falls_silent_ends_no_pod_that_it_said_to_run():
    """It starts again."""
    had = note_of(a="p", b="q")
    holdings = Holdings().remembered({}).new_kubelet(NOW - 1, "k").noted(had, NOW, NOW)
    struck, both = holdings.noted({}, NOW + 1, NOW + 1), frozenset({"p", "q"})
    silent = struck.told(frozenset({"p"}), both).told(None, both)
    assert silent.freed == {"b"}
    assert silent.ended(frozenset({"p"})).freed == {"a", "b"}
    assert silent.told(frozenset(), both).freed == {"a", "b"}


def test_a_runtime_that_was_silent_once_is_asked_of_the_next_pod():
    had, (p, q) = note_of(a="p", b="q"), (frozenset({"p"}), frozenset({"q"}))
    holdings = Holdings().remembered({}).new_kubelet(NOW - 1, "k").told(frozenset(), frozenset()).noted(had, NOW, NOW)
    silent = holdings.told(None, frozenset()).noted(note_of(b="q"), NOW + 1, NOW + 1)
    assert silent.freed == frozenset(), "nobody was asked about this pod"
    assert silent.struck.awaits(silent.gone)
    assert silent.told(p, p).freed == frozenset()
    believed = silent.told(None, p)
    assert believed.freed == {"a"}
    assert not believed.struck.awaits(believed.gone)
    assert not believed.only_gave_since(silent)
    assert believed.earlier(["a"]) == p, "it is asked when the id is given away"
    assert believed.told(p, p).freed == frozenset()
    both = believed.noted({}, NOW + 2, NOW + 2)
    assert both.freed == {"a"}
    assert both.told(None, p | q).freed == {"a", "b"}
    assert both.told(None, p | q).told(frozenset(), p | q).struck.pods == {}


@pytest.mark.parametrize("gone", [False, True])
def test_the_pod_before_the_last_one_may_run_still(gone):
    """A manifest was changed twice: the second pod waits for the first one, and is struck before it has started."""
    first, both = frozenset({"first"}), frozenset({"first", "second"})
    holdings = Holdings().remembered({}).new_kubelet(NOW - 1, "k").told(frozenset(), frozenset())
    holdings = holdings.noted(note_of(a="first"), NOW, NOW).noted(note_of(a="second"), NOW + 1, NOW + 1)
    assert holdings.pods == both
    assert holdings.earlier(["a"]) == both
    struck = holdings.told(first, both).noted(note_of(b="third"), NOW + 2, NOW + 2)
    assert struck.freed == frozenset()
    assert struck.told(first, both).freed == frozenset()
    assert struck.told(None, both).freed == frozenset()
    over = struck.told(first, both)
    assert (over.ended(first) if gone else over.told(frozenset(), both)).freed == {"a"}


def test_the_next_kubelet_takes_what_was_struck_for_free_too():
    """A kubelet that starts ends the pods that it doesn't know, which takes their grace period."""
    pods, both = frozenset({"p"}), frozenset({"p", "q"})
    holdings = Holdings().remembered({}).new_kubelet(NOW - 1, "k").told(frozenset(), frozenset())
    holdings = holdings.noted(note_of(a="p", b="q"), NOW, NOW).noted(note_of(b="q"), NOW + 1, NOW + 1)
    after = holdings.new_kubelet(NOW + 2, "l").noted(note_of(b="q"), NOW + 3, NOW + 3)
    assert after.earlier(["a"]) == after.told(pods, both).earlier(["a"]) == pods
    assert after.struck.awaits(after.gone), "its end is looked for"
    given = after.began(("a",)).gave(("a",), NOW + 4).noted(note_of(a="r", b="q"), NOW + 5, NOW + 5)
    assert given.struck.of("a") == pods
    assert after.told(frozenset({"q"}), both).earlier(["a"]) == frozenset()


def test_pods_before_the_last_one_are_forgotten_unless_they_are_said_to_run():
    holdings = Holdings().remembered({}).new_kubelet(NOW - 1, "k")
    for second in range(5):
        holdings = holdings.noted(note_of(a=f"pod {second}"), NOW + second, NOW + second)
    assert holdings.struck.pods == {}
    runs = frozenset({"pod 4"})
    silent = holdings.told(runs, runs).told(None, runs).noted(note_of(a="pod 5"), NOW + 5, NOW + 5)
    assert silent.struck.pods == {"a": runs}


@pytest.mark.parametrize("last", ["journal", "note", "kubelet"])
def test_an_id_struck_in_an_earlier_gateway_s_time_may_be_in_use(last):
    """Its pod was deleted by force, and the gateway has started again since."""
    events = {
        "journal": lambda it: it.remembered({"a": Unreleased("k", frozenset({"p"}))}),
        "note": lambda it: it.noted({}, NOW + 1, NOW + 1),
        "kubelet": lambda it: it.new_kubelet(NOW - 1, "k"),
    }
    holdings = Holdings()
    for event in (*(events.keys() - {last}), last):
        holdings = events[event](holdings)
    assert holdings.freed == frozenset()
    assert holdings.earlier(["a"]) == {"p"}
    assert holdings.told(frozenset({"p"}), frozenset({"p"})).freed == frozenset()
    assert holdings.told(frozenset(), frozenset({"p"})).freed == {"a"}
    assert holdings.told(None, frozenset({"p"})).freed == {"a"}
    assert holdings.told(frozenset(), frozenset({"p"})).remembered({"a": Unreleased("k", frozenset({"p"}))}).freed


@pytest.mark.parametrize("last", ["journal", "note"])
def test_the_pod_before_may_run_still_after_a_restart(last):
    asked, first = Holdings().remembered({}).new_kubelet(NOW - 1, "k").told(frozenset(), frozenset()), frozenset({"p"})
    before = asked.noted(note_of(a="p", b="p"), NOW, NOW).noted(note_of(a="q"), NOW + 1, NOW + 1)
    journal = {**before.unreleased, "c": Unreleased("k", frozenset({"q"}))}
    after = Holdings().new_kubelet(NOW - 1, "k")
    if last == "journal":
        after = after.noted(note_of(a="q"), NOW + 1, NOW + 2).remembered(journal)
    else:
        after = after.remembered(journal).noted(note_of(a="q"), NOW + 1, NOW + 2)
    assert after.struck.pods == {"a": first, "b": first, "c": frozenset({"q"})}
    assert after.noted({}, NOW + 3, NOW + 3).told(first, first | {"q"}).freed == {"c"}
    unnoted = after.began(("b",)).gave(("b",), NOW + 2).noted({}, NOW + 3, NOW + 3)
    assert unnoted.unreleased["b"].pods == frozenset(), "it may be another pod's"
    late = unnoted.noted({}, NOW + 3 + NOTED_WITHIN, NOW + 3 + NOTED_WITHIN)
    assert (late.unreleased["b"].pods, late.freed) == (first, frozenset())
    over = after.told(frozenset(), first | {"q"})
    assert over.remembered(journal).struck.pods.keys() <= {"b", "c"}, "it is read again"
    assert over.noted(note_of(a="q"), NOW + 3, NOW + 3).unreleased["a"].pods == {"q"}
