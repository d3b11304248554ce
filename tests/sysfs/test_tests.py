import pytest

from dpgateway import from_plain
from dpgateway.sysfs import Match, NoValue

MISSING, UNREADABLE = NoValue.missing(), NoValue("can't be read: Input/output error")


@pytest.mark.parametrize(
    ("test", "passing", "failing"),
    [
        ("0x8086", ["0x8086"], ["0x80860", "0X8086", "", MISSING, UNREADABLE]),
        (["a*", "?b"], ["a", "abc", "xb"], ["b", "ba", MISSING]),
        ("a|b*|[^c-e]z", ["a", "bz", "fz"], ["az|", "cz", "ab"]),
        ({"exact": "a*"}, ["a*"], ["ab"]),
        ({"none_of": ["0", "x*"]}, ["1", "00", ""], ["0", "xy", MISSING, UNREADABLE]),
        ({"regex": "0x(8086|10de)"}, ["0x10de"], ["0x10de1", "x0x10de", MISSING]),
        ({"at_least": 10, "at_most": 0x20}, ["10", "0x0A", "0x20"], ["9", "33", "0xg", "", "ten", MISSING]),
        ({"at_least": 5, "at_most": 5}, ["5"], ["4", "6"]),
        ({"at_most": 0}, ["0", "-1", "0x0"], ["1", UNREADABLE]),
        ({"present": True}, ["", "0", UNREADABLE], [MISSING]),
        ({"present": False}, [MISSING], ["", "0", UNREADABLE]),
        ({"glob": "0", "or_absent": True}, ["0", MISSING], ["1", UNREADABLE]),
        ({"glob": "a*", "none_of": "ab"}, ["aa"], ["ab", "b"]),
    ],
)
def test_a_test(test, passing, failing):
    one = from_plain({"subsystem": "x", "attr": {"y": test}}, Match).attr["y"]
    assert [value for value in passing + failing if one.passes(value)] == passing
