"""What is allowed, but may not do what its author wants."""

import pytest

from dpgateway.config.warnings import advise
from tests.support.configurations import Write, load


@pytest.mark.parametrize(
    ("more", "warning"),
    [
        ("shares: {count: 2, distinct: require}", "shares: kubelets before 1.19 pick shares blindly"),
        ("shares: {count: 1, distinct: require}", None),
        ("front: dra\n  shares: {count: 2, distinct: require}\n  preference: packed\ndra: {driver: a.b}", None),
        ("preference: packed", "preference: the driver's own prefer isn't asked with packed"),
        ("preference: none", None),
    ],
)
def test_advice_about_a_resource(config: Write, more: str, warning: str | None) -> None:
    written = load(config(f"resources:\n- name: example.com/a\n  driver: x\n  {more}"))
    found = [str(one) for one in advise(written, {"x"})]
    assert len(found) == (1 if warning else 0)
    assert not warning or f":4: resources[0].{warning}" in found[0]


def test_no_preference_warning_without_prefer(config: Write) -> None:
    assert advise(load(config("resources: [{name: example.com/a, driver: x, preference: packed}]")), {"y"}) == ()


def test_advice_about_the_whole(config: Write) -> None:
    texts = [one.hint for one in advise(load(config("resources: []\nkubelet: {apis: [v1beta1]}")), ())]
    assert [text.split(":")[0] for text in texts] == [
        "resources is empty, so nothing is served",
        "this is for diagnosis only",
    ]


@pytest.mark.parametrize(
    ("server", "told"),
    [
        *((server, 0) for server in ("https://10.0.0.1:6443", "http://127.0.0.1:80", "http://localhost:80")),
        *((server, 0) for server in ("http://[::1]:80", "http://localhost")),
        *((server, 1) for server in ("http://10.0.0.1:6443", "http://localhost.example.com", "http://127.example.com")),
    ],
)
def test_advice_about_a_token_that_others_can_read(config: Write, server: str, told: int) -> None:
    resources = "resources: [{name: example.com/a, driver: x}]"
    found = advise(load(config(f"{resources}\ncluster: {{server: '{server}'}}")), ())
    assert [one.place.key for one in found] == ["cluster.server"] * told


@pytest.mark.parametrize(
    ("listen", "told"), [("127.0.0.2:80", 0), ("'[::1]:80'", 0), ("0.0.0.0:80", 1), ("'[::]:80'", 1)]
)
def test_advice_about_pages_for_the_whole_network(config: Write, listen: str, told: int) -> None:
    resources = "resources: [{name: example.com/a, driver: x}]"
    found = advise(load(config(f"{resources}\nweb: {{listen: {listen}}}")), ())
    assert [one.place.key for one in found] == ["web.listen"] * told
