"""Each key: what it becomes, and what is refused."""

from datetime import timedelta
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from dpgateway import Mount
from dpgateway.config import DEVICE_PLUGINS_DIR, KubeletSettings, ResourceKeys, Shares, Timeouts
from tests.support.configurations import Write, load, only_problem, resources


def test_defaults_as_documented(config: Write) -> None:
    document = load(config("resources: [{name: example.com/a, driver: x}]"))
    (resource,) = resources(document)
    assert resource == ResourceKeys(
        name="example.com/a",
        driver="x",
        options={},
        nodes=("*",),
        shares=Shares(1, "prefer"),
        preference="none",
        pool=None,
        keep_lost=timedelta(minutes=10),
        refresh=timedelta(seconds=30),
        env={},
        annotations={},
        mounts=(),
        timeouts=Timeouts(*(timedelta(seconds=seconds) for seconds in (10, 10, 1, 25))),
    )
    assert document.kubelet == KubeletSettings(DEVICE_PLUGINS_DIR, ("v1beta1", "v1alpha2", "v1alpha1"))
    assert document.web.address is None


def test_every_key(config: Write) -> None:
    document = load(
        config("""
resources:
  - name: example.com/a
    driver: x
    options: {a: 1}
    nodes: [gpu-*, "10"]
    shares: {count: 4, distinct: require}
    preference: spread
    pool: gpus
    keep_lost: 1h
    refresh: 500ms
    env: {A: "1", B: yes}
    annotations: {example.com/x: y}
    mounts: [{host_path: /a, container_path: /b, read_only: false}]
    timeouts: {list: 1m30s, allocate: 2s, prefer: 900ms, prepare: 28s}
kubelet: {device_plugins_dir: /run/plugins, apis: [v1alpha2]}
web: {listen: "[::1]:9480"}
""")
    )
    assert resources(document) == [
        ResourceKeys(
            name="example.com/a",
            driver="x",
            options={"a": 1},
            nodes=("gpu-*", "10"),
            shares=Shares(4, "require"),
            preference="spread",
            pool="gpus",
            keep_lost=timedelta(hours=1),
            refresh=timedelta(seconds=0.5),
            env={"A": "1", "B": "yes"},
            annotations={"example.com/x": "y"},
            mounts=(Mount("/a", "/b", read_only=False),),
            timeouts=Timeouts(*(timedelta(seconds=seconds) for seconds in (90, 2, 0.9, 28))),
        )
    ]
    assert document.kubelet == KubeletSettings(Path("/run/plugins"), ("v1alpha2",))
    assert document.web.address == (IPv6Address("::1"), 9480)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("pool", '""', "expected the name of a pool, in one line of at most 253 bytes, or null"),
        ("pool", '"on two\\nlines"', "expected the name of a pool, in one line of at most 253 bytes"),
        ("pool", "é" * 127, "expected the name of a pool, in one line of at most 253 bytes"),
        ("shares", "0", "from 1 to 1000"),
        ("shares", "{count: 0}", "from 1 to 1000"),
        ("shares", "{distinct: require}", "shares.count: found nothing"),
        ("shares", "{count: 2, ids: '{id}'}", "expected a text with {share}"),
        ("shares", "{count: 2, ids: '{share}{x}'}", "expected a text with {share}"),
        ("shares", "{count: 2, ids: '{sha1:{share}{x}}'}", "expected a text with {share}"),
        ("shares", "{count: 2, env: {A: '{percent}'}}", "expected texts with {granted}, {shares} or {part:100}"),
        ("shares", "{count: 2, env: {A: '{part:x}'}}", "expected texts with {granted}, {shares} or {part:100}"),
        ("shares", "{count: 2, env: {'A=': x}}", "expected environment variables' names"),
        ("shares", "'2'", 'found "2", expected an integer, or a mapping'),
        ("shares", "true", "found true, expected an integer, or a mapping"),
        ("shares", "{count: true}", "shares.count: found true, expected an integer"),
        ("driver", "''", "the name of a driver"),
        ("options", "[]", None),
        ("env", "{'A=B': x}", "without '='"),
        ("env", "{1: x}", "keys that are strings"),
        ("env", '{A: "x\\0y"}', "found x\\x00y, expected text that can be written in UTF-8, without NUL"),
        ("env", '{"x\\0y": A}', 'found the key "x\\u0000y", expected text that can be written in UTF-8, without NUL'),
        ("annotations", "{'': x}", "values that a container can get; annotations key: expected a non-empty string"),
        ("env", "{A: 2001}", 'found 2001, expected a string; put it in quotes: "2001"'),
        ("env", "{A: !secret x}", 'env.A: found the tag "!secret", expected a plain value, without a tag'),
        ("mounts", "[{host_path: a, container_path: /b}]", "mounts[0].host_path"),
        ("mounts", "[{host_path: /a, container_path: /b}, {host_path: /c, container_path: /b}]", "each container_path"),
        ("mounts", "[{host_path: /a, container_path: /b}, {host_path: /a, container_path: //b/}]", '"/b" twice'),
        ("timeouts", "{prefer: 2s}", "timeouts.prefer: found 2s, expected at most 1s"),
        ("timeouts", "5s", "a mapping with the keys list, allocate, prefer, prepare"),
        ("keep_lost", "null", "found nothing, expected a duration"),
    ],
)
def test_one_wrong_value(config: Write, key: str, value: str, words: str | None) -> None:
    entries = {"name": "example.com/a", "driver": "x", key: value}
    path = config("resources:\n- {" + ", ".join(f"{key}: {value}" for key, value in entries.items()) + "}")
    if words is None:
        load(path)  # its driver will tell
        return
    problem = only_problem(path)
    assert problem.startswith(f":2: resources[0].{key}")
    assert words in problem


@pytest.mark.parametrize("key", ["options", "env", "annotations", "mounts", "timeouts"])
def test_commented_out_collections_are_empty(config: Write, key: str) -> None:
    (resource,) = resources(load(config(f"resources:\n- name: example.com/a\n  driver: x\n  {key}:\n  #  a: b\n")))
    assert resource == ResourceKeys("example.com/a", "x") or resource.options is None
