"""One file or several become one document; every error has its place."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.configurations import Write, load, only_problem, problems_of, resources


def test_all_errors_at_once_with_their_places(config: Write) -> None:
    path = config("""\
resources:
  - name: example.com/a
    driver: x
    keep-lost: 10m
    refresh: 600
    timeouts:
      list: 0s
      prepare: 29s
  - driver: true
    shares: 1001
    preference: paked
    env: {A: 1, "B=": x}
    nodes: gpu-1
  - nonsense
resurces: []
kubelet: {apis: [v1beta2], device_plugins_dir: run}
""")
    assert problems_of(path) == [
        (
            ":4: resources[0].keep-lost: found an unknown key, expected one of name, driver, options, nodes, front, "
            "shares, preference, cdi, pool, keep_lost, refresh, env, annotations, mounts, timeouts; did you mean "
            "keep_lost?"
        ),
        (
            ":5: resources[0].refresh: found 600, expected a duration: a number and a unit (ms, s, m or h), "
            "like 30s or 1m30s; write 600s"
        ),
        ":7: resources[0].timeouts.list: found 0s, expected a duration of at least 1ms",
        (
            ":8: resources[0].timeouts.prepare: found 29s, expected at most 28s; the kubelet waits 30s for "
            "PreStartContainer, and the answer has to reach it"
        ),
        ':9: resources[1].driver: found true, expected a string; put it in quotes: "true"',
        ":9: resources[1].name: found nothing, expected a value, because this key has no default",
        ":10: resources[1].shares: found 1001, expected a number of shares from 1 to 1000",
        ':11: resources[1].preference: found "paked", expected none or packed or spread; did you mean packed?',
        ':12: resources[1].env.A: found 1, expected a string; put it in quotes: "1"',
        ':13: resources[1].nodes: found "gpu-1", expected a list of string; write ["gpu-1"]',
        ':14: resources[2]: found "nonsense", expected a mapping with the keys name, driver, ...',
        (
            ":15: resurces: found an unknown key, expected one of resources, defaults, kubelet, state_dir, runtime, "
            "web, dra, cluster; did you mean resources?"
        ),
        ':16: kubelet.apis[0]: found "v1beta2", expected v1beta1 or v1alpha2 or v1alpha1; did you mean v1beta1?',
        ':16: kubelet.device_plugins_dir: found "run", expected an absolute path',
    ]


def test_a_pool_changes_its_front_together(config: Write) -> None:
    path = config("""
defaults: {pool: boards}
resources:
  - {name: example.com/a, driver: x, front: auto}
  - {name: example.com/b, driver: x}
  - {name: example.com/c, driver: x, pool: others}
dra: {driver: dra.example.com}
""")
    expected = (
        "found deviceplugin, expected auto, as the others; the resources of pool boards change their front together"
    )
    assert problems_of(path) == [f":5: resources[1].front: {expected}"]


def test_auto_needs_a_driver(config: Write) -> None:
    path = config("resources: [{name: example.com/a, driver: x, front: auto}]")
    assert [text.partition("; ")[0] for text in problems_of(path)] == [
        ":1: resources[0].front: found auto, expected deviceplugin"
    ]


def test_defaults_fill_what_a_resource_leaves_out(config: Write) -> None:
    document = load(
        config("""
defaults:
  refresh: 5s
  nodes: [a]
  env: {A: "1", B: "1"}
  timeouts: {list: 1s, allocate: 1s}
resources:
  - {name: example.com/a, driver: x}
  - {name: example.com/b, driver: x, refresh: 7s, nodes: [b], env: {B: "2"}, timeouts: {list: 2s}}
""")
    )
    first, second = resources(document)
    assert (first.refresh, first.nodes, first.env) == (timedelta(seconds=5), ("a",), {"A": "1", "B": "1"})
    assert (second.refresh, second.nodes, second.env) == (timedelta(seconds=7), ("b",), {"A": "1", "B": "2"})
    assert (second.timeouts.list, second.timeouts.allocate) == (timedelta(seconds=2), timedelta(seconds=1))


def test_errors_in_defaults_are_told_once(config: Write) -> None:
    path = config("""\
defaults:
  name: x
  refresh: 600
  timeouts: {prepare: 1h}
resources:
  - {name: example.com/a, driver: x}
  - {name: example.com/b, driver: x, timeouts: {list: 5}}
""")
    keys = [problem.split(": ")[0:2] for problem in problems_of(path)]
    assert keys == [
        [":2", "defaults.name"],
        [":3", "defaults.refresh"],
        [":4", "defaults.timeouts.prepare"],
        [":7", "resources[1].timeouts.list"],
    ]
    assert [problem.split(": ")[1] for problem in problems_of(config("defaults: {preference: x}\nresources: []"))] == [
        "defaults.preference"
    ]


def test_a_missing_key_has_the_resources_place(config: Write) -> None:
    path = config("""\
defaults:
  name: example.com/x
  mounts: [{host_path: /a, container_path: /b}]
resources:
  - {driver: x}
  - {name: example.com/b, driver: x, mounts: [{container_path: /b}]}
""")
    assert [problem.split(", ")[0] for problem in problems_of(path)] == [
        ":2: defaults.name: found an unknown key",
        ":5: resources[0].name: found nothing",
        ":6: resources[1].mounts[0].host_path: found nothing",
    ]


def test_a_default_does_not_disagree_with_itself(config: Write) -> None:
    load(config("defaults: {options: {limit: .nan}}\nresources: [{name: example.com/a, driver: x}]"))


@pytest.mark.parametrize("own", ["env: {A: 1}", "env: [x]", "env: x"])
def test_an_overridden_default_has_its_own_place(config: Write, own: str) -> None:
    path = config(f"""\
defaults: {{env: {{A: "1", B: "2"}}}}
resources:
  - name: example.com/a
    driver: x
    {own}
""")
    assert only_problem(path).startswith(":5: resources[0].env")


def test_files_disagree_about_state_dir(config: Write, tmp_path: Path) -> None:
    for name, state in {"1.yaml": "/a", "2.yaml": "/a", "3.yaml": "/b"}.items():
        config(f"resources: []\nstate_dir: {state}", name)
    expected = f'found "/b", expected "/a", as at {tmp_path}/1.yaml:2; all files share this key'
    assert only_problem(tmp_path) == f"/3.yaml:2: state_dir: {expected}"
    config("resources: []", "3.yaml")
    assert load(tmp_path).state_dir == Path("/a")


def test_a_resource_named_twice_names_both_places(config: Write) -> None:
    path = config("resources:\n- {name: example.com/a, driver: x}\n- {name: example.com/a, driver: y}")
    assert (
        only_problem(path) == f':3: resources[1].name: found "example.com/a", expected each resource once; '
        f"it is also at {path}:2"
    )


class TestDirectory:
    def test_its_yaml_files_are_one_configuration(self, config: Write, tmp_path: Path) -> None:
        config("defaults: {refresh: 5s}\nkubelet: {apis: [v1beta1]}\nweb: {listen: 127.0.0.1:80}", "00-all.yaml")
        config("resources: [{name: example.com/b, driver: x}]", "20-b.yaml")
        config("defaults: {refresh: 5s, keep_lost: 1s}\nresources: [{name: example.com/a, driver: x}]", "10-a.yaml")
        config("not: [yaml", "notes.txt")
        config("not: [yaml", ".hidden.yaml")
        document = load(tmp_path)
        first, second = resources(document)
        assert [first.name, second.name] == ["example.com/a", "example.com/b"]
        assert {first.refresh, second.refresh} == {timedelta(seconds=5)}
        assert {first.keep_lost, second.keep_lost} == {timedelta(seconds=1)}
        assert (document.kubelet.apis, document.web.listen) == (("v1beta1",), "127.0.0.1:80")

    def test_two_files_may_not_disagree(self, config: Write, tmp_path: Path) -> None:
        a = config(
            "defaults: {refresh: 5s, timeouts: {list: 1s}}\nresources: [{name: example.com/a, driver: x}]", "a.yaml"
        )
        b = config(
            "defaults: {refresh: 6s, timeouts: {list: 2s}}\nresources: [{name: example.com/a, driver: x}]", "b.yaml"
        )
        problems = problems_of(tmp_path)
        assert [problem.partition("; ")[0] for problem in problems] == [
            f'/b.yaml:1: defaults.refresh: found "6s", expected "5s", as at {a}:1',
            f'/b.yaml:1: defaults.timeouts.list: found "2s", expected "1s", as at {a}:1',
            '/b.yaml:2: resources[0].name: found "example.com/a", expected each resource once',
        ]
        assert problems[-1].endswith(f"it is also at {a}:2")
        assert b.exists()

    def test_all_files_errors_at_once(self, config: Write, tmp_path: Path) -> None:
        config("resources: [x", "a.yaml")
        config("resources: [{name: a, driver: x}]", "b.yaml")
        assert [problem.split(": ")[0] for problem in problems_of(tmp_path)] == ["/a.yaml:1", "/b.yaml:1"]

    def test_an_empty_one(self, tmp_path: Path) -> None:
        assert only_problem(tmp_path) == ": found no *.yaml in this directory, expected at least one"


def test_only_the_resources_of_a_node(config: Write) -> None:
    document = load(
        config("""
resources:
  - {name: example.com/all, driver: x}
  - {name: example.com/gpu, driver: y, nodes: ["gpu-*", big]}
  - {name: example.com/none, driver: z, nodes: []}
""")
    )
    named = {node: [one.name for one in resources(document.for_node(node))] for node in ("gpu-1", "big", "GPU-1")}
    assert named == {
        "gpu-1": ["example.com/all", "example.com/gpu"],
        "big": ["example.com/all", "example.com/gpu"],
        "GPU-1": ["example.com/all"],
    }
    assert document.for_node("x").drivers == {"x"}


def test_each_resource_beside_those_that_its_nodes_have_too(config: Write) -> None:
    document = load(
        config("""
resources:
  - {name: example.com/all, driver: x}
  - {name: example.com/gpu, driver: y, nodes: ["gpu-*", "gpu-[12]"]}
  - {name: example.com/one, driver: z, nodes: [gpu-1, "big-[ab]"]}
  - {name: example.com/none, driver: z, nodes: []}
""")
    )
    found = {tuple(one.name.partition("/")[2] for one in resources(part)) for part in document.for_all_nodes()}
    assert found == {("all",), ("all", "gpu"), ("all", "gpu", "one"), ("all", "one")}
    (nothing,) = load(config("resources: []")).for_all_nodes()
    assert resources(nothing) == []
