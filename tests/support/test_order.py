from pathlib import Path

import pytest

from tests.support.order import LATEST, WAITING, spread

ROOT = Path(__file__).parents[2]
LONG, *_, SHORT = WAITING


@pytest.mark.parametrize("name", WAITING)
def test_each_name_is_a_file_or_a_folder(name):
    path = ROOT / name
    assert path.is_dir() if name.endswith("/") else path.is_file()


def test_those_that_wait_are_spread_by_their_time():
    computing = [f"tests/config/{n:03}" for n in range(100)]
    ordered = spread([*computing, SHORT, LONG, SHORT], lambda path: path)
    assert [path for path in ordered if path not in {LONG, SHORT}] == computing
    waiting = [(place, path) for place, path in enumerate(ordered) if path in {LONG, SHORT}]
    assert [path for _, path in waiting] == [LONG, SHORT, SHORT]
    (first, _), (second, _), (third, _) = waiting
    whole = WAITING[LONG] + 2 * WAITING[SHORT]
    assert (first, second) == (0, 1 + int(LATEST * 100 * WAITING[LONG] / whole))
    assert second < third <= 2 + LATEST * 100


@pytest.mark.parametrize("tests", [[], [LONG], [SHORT, LONG], ["tests/config/test_values.py"]])
def test_a_few_are_all_there(tests):
    assert sorted(spread(tests, lambda path: path)) == sorted(tests)
