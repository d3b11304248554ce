"""Groups that were formed stay, and come back from their ids."""

from dpgateway.sysfs import naming
from dpgateway.sysfs.naming import GroupMember, Rule, formed

PAIR = Rule(size=2)
EACH = Rule(kinds=(0, 2), optional=(1,))


def members(text):
    return [GroupMember(0, name) for name in text.split()]


def ids(groups):
    return [one.id for one in groups]


def test_held_groups_are_formed_first():
    assert ids(formed((), members("a b c d"), PAIR, ["a+c"])) == ["a+c", "b+d"]
    there = [GroupMember(0, "a"), GroupMember(0, "b"), GroupMember(2, "x"), GroupMember(2, "y")]
    assert ids(formed((), there, EACH, ["a+y"])) == ["a+y", "b+x"]


def test_held_incomplete_group_stays():
    groups = formed((), members("a b"), PAIR, ["a+c"])
    assert [(one.id, [member.name for member in one.lacking(members("a b"))]) for one in groups] == [("a+c", ["c"])]
    assert ids(formed(groups, members("a b"), PAIR)) == ["a+b"]
    groups = formed(groups, members("a b c"), PAIR, ["a+c"])
    assert ids(formed(groups, members("a b"), PAIR)) == ["a+c"], "it was whole"


def test_odd_held_ids_form_nothing():
    odd = ["a", "a+", "+", "a+b+c", "x+y", "", "a::1"]
    assert ids(formed((), members("a b"), PAIR, odd)) == ["a+b"]
    assert ids(formed((), members("a b"), Rule(size=2, named=False), ["b+a"])) == ["a"]


def test_what_is_formed_stays_whatever_is_held():
    groups = formed((), members("a b"), PAIR)
    assert ids(formed(groups, members("a b c"), PAIR, ["a+c"])) == ["a+b"]


def test_namesakes_are_two_members():
    there = [GroupMember(0, "a"), GroupMember(0, "a", 1)]
    assert ids(formed((), there, PAIR, ["a+a"])) == ["a+a"]
    assert formed((), there, PAIR, ["a+a"])[0].members == tuple(there)


def test_absent_groups_are_forgotten():
    groups = formed((), members("a b"), PAIR)
    more = [GroupMember(0, f"x{number}") for number in range(2 * naming.MOST)]
    assert "a+b" in ids(formed(groups, more[2:], PAIR))
    assert "a+b" not in ids(formed(groups, more, PAIR))
