"""Durations and names: what is accepted, what is refused, and with which hint."""

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgateway.config import format_duration
from dpgateway.config.problems import Wrong
from dpgateway.config.spelling import LISTEN, check_resource_name, parse_duration, parse_listen

MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


@given(st.integers(0, 10**12).map(lambda number: timedelta(milliseconds=number)))
def test_a_duration_survives_being_written(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.dictionaries(st.sampled_from(list(MILLISECONDS)), st.integers(0, 10**6), min_size=1))
def test_a_duration_is_the_sum_of_its_parts(parts: dict[str, int]) -> None:
    text = "".join(f"{parts[unit]}{unit}" for unit in MILLISECONDS if unit in parts)
    assert parse_duration(text) == timedelta(milliseconds=sum(n * MILLISECONDS[unit] for unit, n in parts.items()))


@given(st.text())
def test_any_other_text_is_refused_with_a_reason(text: str) -> None:
    try:
        duration = parse_duration(text)
    except Wrong:
        return
    assert duration >= timedelta()


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (600, "write 600s"),
        ("600", "write 600s"),
        (1.5, "write 1.5s"),
        ("1m 30s", "write 1m30s"),
        ("10S", "write 10s"),
        ("-5s", "negative"),
        (-5, "negative"),
        ("2d", "a day is 24h"),
        ("999999999999h", "longer than any clock"),
        ("", ""),
        ("30s1m", ""),
        ("1s1s", ""),
        (True, ""),
        (None, ""),
    ],
)
def test_the_hint_says_what_to_write(value: object, hint: str) -> None:
    with pytest.raises(Wrong) as caught:
        parse_duration(value)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "seconds"), [("1.5h", 5400), ("0.5s", 0.5), ("1m30s", 90), ("250ms", 0.25), ("0s", 0)]
)
def test_fractions_and_combinations(text: str, seconds: float) -> None:
    assert parse_duration(text).total_seconds() == seconds


LABEL = r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?"
NAMES = st.from_regex(rf"{LABEL}(\.{LABEL}){{0,3}}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,60}}[A-Za-z0-9])?", fullmatch=True)


@given(NAMES.filter(lambda name: "kubernetes.io/" not in name and not name.startswith("requests.")))
def test_every_name_that_follows_the_rule_is_accepted(name: str) -> None:
    assert check_resource_name(name) == name


def is_extended_resource_name(name: str) -> bool:
    """v1helper.IsExtendedResourceName, as kubernetes 1.10 to 1.36 write it, clause by clause."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    parts = f"requests.{name}".split("/")
    if len(parts) != 2:
        return False
    prefix, thing = parts
    subdomain = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    qualified = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
    return bool(
        len(prefix) <= 253
        and re.fullmatch(subdomain, prefix)
        and 1 <= len(thing) <= 63
        and re.fullmatch(qualified, thing)
    )


@given(st.text(alphabet="aZ0.-_/\n", max_size=12))
def test_the_rule_is_the_kubelets(name: str) -> None:
    try:
        accepted = check_resource_name(name) == name
    except Wrong:
        accepted = False
    assert accepted == is_extended_resource_name(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("serial", "exactly one '/'"),
        ("a.example/b/c", "exactly one '/'"),
        ("kubernetes.io/x", "belongs to Kubernetes"),
        ("my.kubernetes.io/x", "belongs to Kubernetes"),
        ("requests.example.com/x", "requests."),
        ("Example.com/x", "lower case: example.com"),
        ("-a.example/x", "is a domain"),
        ("/x", "is a domain"),
        ("example.com/", "has 0 characters"),
        ("example.com/" + "x" * 64, "has 64 characters"),
        ("example.com/-x", "begins and ends"),
        ("a" * 245 + "/x", "245 characters, at most 244"),
    ],
)
def test_a_refused_name_says_why(name: str, hint: str) -> None:
    with pytest.raises(Wrong) as caught:
        check_resource_name(name)
    assert hint in caught.value.hint


def test_the_longest_names() -> None:
    assert check_resource_name("a" * 244 + "/" + "x" * 63)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9480", "127.0.0.1", 9480), ("[::1]:0", "::1", 0), ("10.0.0.1:65535", "10.0.0.1", 65535)],
)
def test_an_address_to_listen_at(text: str, host: str, port: int) -> None:
    address, found = parse_listen(text)
    assert (str(address), found) == (host, port)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("localhost:9480", "write 127.0.0.1:9480"),
        (":9480", "write 127.0.0.1:9480"),
        ("9480", "write 127.0.0.1:9480"),
        *((text, "") for text in ("", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:٣", "::1:80")),
        *((text, "") for text in ("[127.0.0.1]:80", "127.0.0:80", "[::1]", "example.com:80", "http://127.0.0.1:80")),
    ],
)
def test_what_is_no_address_to_listen_at(text: str, hint: str) -> None:
    with pytest.raises(Wrong) as caught:
        parse_listen(text)
    assert (caught.value.expected, caught.value.hint) == (LISTEN, hint)
