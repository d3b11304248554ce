"""Ids and names as the API accepts them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgateway.dra.slices.names import identifier, label, pool_name, unique

DNS_LABEL = re.compile(r"(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@pytest.mark.parametrize("text", ["a", "net0", "0-a", "a" * 63])
def test_a_label_stays(text: str) -> None:
    assert label(text) == text


@pytest.mark.parametrize(
    "text", ["A", "ttyUSB0", "/dev/ttyUSB0", "a" * 64, "-a", "a-", "0000:3b:00.0", "ä", "::", "a\n"]
)
def test_other_ids_get_a_hash(text: str) -> None:
    assert DNS_LABEL.fullmatch(label(text))
    assert label(text) != text


@given(st.text(min_size=1))
def test_every_id_has_a_label(text: str) -> None:
    assert DNS_LABEL.fullmatch(label(text))


@given(st.lists(st.text(min_size=1, max_size=5), unique=True))
def test_names_are_unique_and_nothing_is_lost(ids: list[str]) -> None:
    names, left_out = unique(ids)
    assert len(set(names.values())) == len(names)
    assert sorted([*names, *left_out]) == sorted(ids)


def test_an_id_that_is_a_label_comes_first() -> None:
    names, left_out = unique(["TTY", label("TTY")])
    assert names == {label("TTY"): label("TTY")}
    assert left_out == ("TTY",)


@pytest.mark.parametrize(
    ("node", "group", "name"),
    [
        ("n1", "example.com/serial", "n1/example.com/serial"),
        ("n1.example.com", "boards", "n1.example.com/boards"),
        ("n1", "example.com/My_Card", f"n1/example.com/{label('My_Card')}"),
    ],
)
def test_pool_names_are_subdomains(node: str, group: str, name: str) -> None:
    assert pool_name(node, group) == name


@pytest.mark.parametrize(
    ("name", "found"),
    [("model", "model"), ("product-name", "product_name"), ("0x", "_0x"), ("a" * 32, "a" * 32), ("a" * 33, "")],
)
def test_attribute_names_are_identifiers(name: str, found: str) -> None:
    assert identifier(name) == found
