from collections import Counter

from dpgateway.sysfs import naming
from dpgateway.sysfs.naming import Names


def choose(names, *objects):
    counted = Counter(name for one in objects for name in one)
    return [names.choose(one, counted) for one in objects]


def test_the_best_name_that_nothing_else_has():
    assert choose(Names(), ("A", "1"), ("B", "2"), ("B", "3"), ("4",)) == ["A", "2", "3", "4"]


def test_keeps_a_name():
    names = Names()
    assert choose(names, ("A", "1")) == ["A"]
    assert choose(names, ("A", "2"), ("A", "1")) == ["2", "A"]
    assert choose(names, ("A", "2")) == ["2"]
    assert choose(names, ("A", "3")) == ["A"]
    assert choose(names, ("A", "1"), ("A", "3")) == ["1", "A"]


def test_forgets_old_names():
    names = Names()
    for number in range(naming.MOST + 1):
        choose(names, (f"serial {number}", f"port {number}"))
    assert choose(names, ("serial 0", "port 0"), ("serial 0", "elsewhere")) == ["port 0", "elsewhere"]
    assert choose(names, ("serial 9", "port 9"), ("serial 9", "nowhere")) == ["serial 9", "nowhere"]
