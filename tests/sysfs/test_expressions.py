"""Expressions take time that grows with the text alone, and what no such engine can match is refused with a reason."""

import subprocess
import sys
import threading

import pytest

from dpgateway.sysfs import Expression, ExpressionError, Test, expression


@pytest.mark.parametrize("text", ["(a+)+b", "(a|aa)+b", "(.*a){20}b", r"(\w+\s?)*!"])
def test_hostile_text_frees_the_interpreter(text):
    """With an engine that backtracks the first of these needs 2^65536 steps."""
    assert not Test(regex=text).passes("a" * 65536)


def test_other_threads_run_during_a_long_match():
    """Half a second of work for RE2, without the interpreter's lock: this thread goes on in between.

    On a busy machine this thread may stand still as long, but not each time.
    """
    long = expression("(.*a){900}b")

    def turns_meanwhile():
        began = threading.Event()

        def match():
            began.set()
            long.fullmatch("a" * 16384)

        thread = threading.Thread(target=match)
        thread.start()
        began.wait()
        turns = 0
        while thread.is_alive():
            thread.join(0.001)
            turns += 1
        return turns

    assert any(turns_meanwhile() > 2 for _ in range(5))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(?=a)b", "without look-around, .*such as regex and none_of, found '.*b'"),
        ("(?<!a)b", "without look-around"),
        (r"(a)\1", "without backreferences"),
        ("(?P<x>a)(?P=x)", "without backreferences"),
        ("a++", "without possessive or atomic groups"),
        ("(?>a)", "without possessive or atomic groups"),
        ("a{,3}", r"expected \{0,3\} in place of \{,3\}, found 'a\{,3\}'"),
        ("a{,}", r"expected \{0,\} in place of \{,\}, found 'a\{,\}'"),
        (r"\\{,3}", r"expected \{0,3\} in place of \{,3\}, found "),
        ("a{1001}", "repetition size"),
        (r"a\Z", "escape"),
        ("(", "missing .*found '\\('"),
        ("\udcff", "found '\\\\udcff'"),
    ],
)
def test_what_cannot_be_taken_is_refused(text, says, capfd):
    with pytest.raises(ExpressionError, match=says):
        Expression(text)
    assert capfd.readouterr() == ("", ""), "the library's own log would break JSON lines"


@pytest.mark.parametrize(
    ("text", "takes", "leaves"),
    [
        ("0x(8086|10de)", ["0x10de"], ["0x10de1", "x0x10de", "0x10de\n"]),
        ("a.b", ["aéb"], ["a\nb", "a\udcffb"]),
        ("(?s)a.*b", ["a\nb"], []),
        ("(?i)Éa", ["éA"], []),
        (r"\d\\{,", ["1\\{,"], ["٣\\{,"]),
    ],
)
def test_what_is_matched(text, takes, leaves):
    assert [one for one in takes + leaves if expression(text).fullmatch(one)] == takes


def test_the_first_group_is_found_anywhere():
    found = expression(r"(?m)^AFI\s+(\S*)$")
    assert (found.groups, found.first_group("AFI  x\nAFI é\udcff")) == (1, "x")
    assert expression("(é.*)").first_group("a é1") == "é1"
    assert (found.first_group("none"), expression("(a)|b").first_group("b")) == (None, None)


def test_re2_is_loaded_when_needed():
    """It takes 1 MB, and most configurations have no expression."""
    code = "import sys, dpgateway.sysfs as s; s.Test(('a',)).passes('a'); print('re2' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
