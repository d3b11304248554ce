from benchmarks.numbers import Turns, p50, percentile


def test_percentile_was_measured():
    values = [float(n) for n in range(100, 0, -1)]
    assert percentile(values, 99) == 99
    assert percentile(values, 100) == 100
    assert percentile([7.0], 99) == 7
    assert percentile([1.0, 2.0], 50) == 1


def test_median_of_even_numbers():
    assert p50([1, 2, 3, 10]) == 2.5


def test_rounds_alternate():
    order = []

    def candidate(name, rounds):
        values = iter(rounds)

        def run():
            order.append(name)
            return [next(values)]

        return run

    # the machine was ten times slower in the last round, for both
    turns = Turns(3, {"a": candidate("a", [2.0, 2.2, 20.0]), "b": candidate("b", [1.0, 1.0, 10.0])})
    assert "".join(order) == "abbaab"
    assert turns.ratio("a", "b") == 2
    assert turns.p50("b") == 1
    assert turns.difference("a", "b") == 1.2000000000000002
