import pytest

from dpgateway_simulator import behaviour
from dpgateway_simulator.kubelet.errors import RefusedError
from dpgateway_simulator.kubelet.names import check, extended, quoted


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("example.com/x", True, True),
        ("nodomain", False, False),
        ("kubernetes.io/x", False, False),
        ("sub.kubernetes.io/x", False, False),
        ("Example.com/x", True, False),
        ("example.com/x/y", True, False),
        ("example.com/", True, False),
        ("example.com/-x", True, False),
        ("requests.example.com/x", True, False),
        ("example.com/" + "x" * 63, True, True),
        ("example.com/" + "x" * 64, True, False),
        ("e" * 244 + "/x", True, True),
        ("e" * 245 + "/x", True, False),
    ],
)
def test_extended_resource_names_became_stricter_with_1_10(name, old, new):
    assert extended(name, qualified=False) == old
    assert extended(name, qualified=True) == new


def test_the_version_is_checked_first():
    with pytest.raises(RefusedError, match="requested API version"):
        check(behaviour("1.37"), "v1", "nodomain")


def test_1_8_has_a_word_for_no_name():
    with pytest.raises(RefusedError, match=r"^invalid Empty ResourceName$"):
        check(behaviour("1.8"), "0.1", "")


@pytest.mark.parametrize(("text", "go"), [("a", '"a"'), ('a"b\\', '"a\\"b\\\\"'), ("a\n", '"a\\n"')])
def test_quoting_as_go_does(text, go):
    assert quoted(text) == go
