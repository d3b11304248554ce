"""Files and directories: what they become, and every error with its place."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgateway import Mount
from dpgateway.config import (
    DEVICE_PLUGINS_DIR,
    InvalidConfiguration,
    Kubelet,
    ResourceKeys,
    Shares,
    Timeouts,
    load,
    read,
)


@pytest.fixture
def config(tmp_path):
    def write(text, name="config.yaml"):
        file = tmp_path / name
        file.write_text(text)
        return file

    return write


def problems_of(path):
    with pytest.raises(InvalidConfiguration) as caught:
        load(path)
    return [str(problem).removeprefix(f"{path}") for problem in caught.value.problems]


def only_problem(path):
    (problem,) = problems_of(path)
    return problem


def resources(document):
    return [entry.resource for entry in document.entries]


def test_the_defaults_are_those_of_the_documentation(config):
    document = load(config("resources: [{name: example.com/a, driver: x}]"))
    (resource,) = resources(document)
    assert resource == ResourceKeys(
        name="example.com/a",
        driver="x",
        options={},
        nodes=("*",),
        shares=Shares(1, "prefer"),
        preference="none",
        keep_lost=timedelta(minutes=10),
        refresh=timedelta(seconds=30),
        env={},
        annotations={},
        mounts=(),
        timeouts=Timeouts(*(timedelta(seconds=seconds) for seconds in (10, 10, 1, 25))),
    )
    assert document.kubelet == Kubelet(DEVICE_PLUGINS_DIR, ("v1beta1", "v1alpha2", "v1alpha1"))


def test_every_key(config):
    document = load(
        config("""
resources:
  - name: example.com/a
    driver: x
    options: {a: 1}
    nodes: [gpu-*, "10"]
    shares: {count: 4, distinct: require}
    preference: spread
    keep_lost: 1h
    refresh: 500ms
    env: {A: "1", B: yes}
    annotations: {example.com/x: y}
    mounts: [{host_path: /a, container_path: /b, read_only: false}]
    timeouts: {list: 1m30s, allocate: 2s, prefer: 900ms, prepare: 28s}
kubelet: {device_plugins_dir: /run/plugins, apis: [v1alpha2]}
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
            keep_lost=timedelta(hours=1),
            refresh=timedelta(seconds=0.5),
            env={"A": "1", "B": "yes"},
            annotations={"example.com/x": "y"},
            mounts=(Mount("/a", "/b", read_only=False),),
            timeouts=Timeouts(*(timedelta(seconds=seconds) for seconds in (90, 2, 0.9, 28))),
        )
    ]
    assert document.kubelet == Kubelet(Path("/run/plugins"), ("v1alpha2",))


def test_all_errors_at_once_with_their_places(config):
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
            ":4: resources[0].keep-lost: found an unknown key, expected one of name, driver, options, nodes, shares, "
            "preference, keep_lost, refresh, env, annotations, mounts, timeouts; did you mean keep_lost?"
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
        ":9: resources[1].name: found nothing, expected a value, for this key has no default",
        ":10: resources[1].shares: found 1001, expected a number of shares from 1 to 1000",
        ':11: resources[1].preference: found "paked", expected none or packed or spread; did you mean packed?',
        ':12: resources[1].env.A: found 1, expected a string; put it in quotes: "1"',
        ':13: resources[1].nodes: found "gpu-1", expected a list of string; write ["gpu-1"]',
        ':14: resources[2]: found "nonsense", expected a mapping with the keys name, driver, ...',
        ":15: resurces: found an unknown key, expected one of resources, defaults, kubelet; did you mean resources?",
        ':16: kubelet.apis[0]: found "v1beta2", expected v1beta1 or v1alpha2 or v1alpha1; did you mean v1beta1?',
        ':16: kubelet.device_plugins_dir: found "run", expected an absolute path',
    ]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("shares", "0", "from 1 to 1000"),
        ("shares", "{count: 0}", "from 1 to 1000"),
        ("shares", "{distinct: require}", "shares.count: found nothing"),
        ("shares", "'2'", 'found "2", expected an integer, or a mapping'),
        ("shares", "true", "found true, expected an integer, or a mapping"),
        ("shares", "{count: true}", "shares.count: found true, expected an integer"),
        ("driver", "''", "the name of a driver"),
        ("options", "[]", None),
        ("env", "{'A=B': x}", "without '='"),
        ("env", "{1: x}", "keys that are strings"),
        ("env", '{A: "x\\0y"}', "what a container can be given; env['A']: 'x\\x00y' contains a NUL character"),
        ("annotations", "{'': x}", "what a container can be given; annotations key: expected a non-empty string"),
        ("env", "{A: 2001-01-01}", "found 2001-01-01, expected a string"),
        ("env", "{A: !secret x}", "expected a string"),
        ("mounts", "[{host_path: a, container_path: /b}]", "mounts[0].host_path"),
        ("mounts", "[{host_path: /a, container_path: /b}, {host_path: /c, container_path: /b}]", "each container_path"),
        ("mounts", "[{host_path: /a, container_path: /b}, {host_path: /a, container_path: //b/}]", '"/b" twice'),
        ("timeouts", "{prefer: 2s}", "timeouts.prefer: found 2s, expected at most 1s"),
        ("timeouts", "5s", "a mapping with the keys list, allocate, prefer, prepare"),
        ("keep_lost", "null", "found nothing, expected a duration"),
    ],
)
def test_one_wrong_value(config, key, value, words):
    entries = {"name": "example.com/a", "driver": "x", key: value}
    path = config("resources:\n- {" + ", ".join(f"{key}: {value}" for key, value in entries.items()) + "}")
    if words is None:
        load(path)  # its driver will tell
        return
    problem = only_problem(path)
    assert problem.startswith(f":2: resources[0].{key}")
    assert words in problem


@pytest.mark.parametrize("key", ["options", "env", "annotations", "mounts", "timeouts"])
def test_a_mapping_or_list_whose_lines_are_all_commented_out_is_empty(config, key):
    (resource,) = resources(load(config(f"resources:\n- name: example.com/a\n  driver: x\n  {key}:\n  #  a: b\n")))
    assert resource == ResourceKeys("example.com/a", "x") or resource.options is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ": found an empty file, expected resources; see docs/reference/configuration.md"),
        ("# nothing\n", ": found an empty file, expected resources; see docs/reference/configuration.md"),
        ("- a", ":1: found a list, expected a mapping with the keys resources, defaults, kubelet"),
        ("a:\n\t- b", ":2: found a tab, expected spaces; YAML is indented with spaces only"),
        ("kubelet: {}\nkubelet: {}\nresources: []", ':2: found duplicate key "kubelet", expected each key once'),
        ("resources: []\n---\nresources: []", ":2: found a second document ('---'), expected one document per file"),
        ("kubelet: {}", ": resources: found no resources, expected a list of resources"),
        ("resources: x", ':1: resources: found "x", expected a list'),
        ("&a {b: *a}", ": found a value that contains itself, or is nested too deeply, expected plain values"),
    ],
)
def test_a_file_that_is_no_configuration(config, text, problem):
    assert only_problem(config(text)) == problem


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: b: c", 1), ("a:\n  b: 1\n c: 2", 3), ("a: [1", 1), ("a: 'x", 1), ("a: *b", 1), ("a: @b", 1), ("a\x00", 0)],
)
def test_broken_yaml_is_one_problem_with_its_line(config, text, line):
    problem = only_problem(config(text))
    assert "found broken YAML" in problem
    assert problem.startswith(f":{line}: " if line else ": ")
    assert "\n" not in problem


def test_unreadable_files(tmp_path):
    assert "no such file or directory" in only_problem(tmp_path / "none.yaml")
    file = tmp_path / "latin.yaml"
    file.write_bytes("é: 1".encode("latin-1"))
    assert "bytes that aren't UTF-8, at offset 0" in only_problem(file)
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    assert "can't be read" in only_problem(loop)


@given(st.text(max_size=40))
def test_no_text_makes_it_raise_anything_else(tmp_path_factory, text):
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    for problem in read(file)[1]:
        assert str(problem).startswith(str(file))


def test_defaults_fill_what_a_resource_leaves_out(config):
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


def test_what_is_wrong_with_the_defaults_is_said_once_at_its_place(config):
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


def test_a_resource_named_twice_names_both_places(config):
    path = config("resources:\n- {name: example.com/a, driver: x}\n- {name: example.com/a, driver: y}")
    assert (
        only_problem(path) == f':3: resources[1].name: found "example.com/a", expected each resource once; '
        f"it is also at {path}:2"
    )


def test_a_value_by_alias_or_merge_has_the_place_where_it_is_written(config):
    path = config("""\
resources:
  - &a {name: example.com/a, driver: x, env: &env {A: 1}}
  - <<: *a
    name: example.com/b
  - {name: example.com/c, driver: x, env: *env}
""")
    assert [problem.split(": ")[0:2] for problem in problems_of(path)] == [
        [":2", "resources[0].env.A"],
        [":2", "resources[1].env.A"],
        [":2", "resources[2].env.A"],
    ]


def test_anchored_scalars_keep_their_types(config):
    text = (
        "resources: [{name: &n example.com/a, driver: &d x, shares: &s 2, mounts: [{host_path: /a, container_path: /b"
    )
    (resource,) = resources(load(config(text + ", read_only: &r false}]}]")))
    assert (resource.shares, resource.mounts) == (Shares(2), (Mount("/a", "/b", read_only=False),))
    assert type(resource.name) is str


class TestDirectory:
    def test_its_yaml_files_are_one_configuration(self, config, tmp_path):
        config("defaults: {refresh: 5s}\nkubelet: {apis: [v1beta1]}", "00-all.yaml")
        config("resources: [{name: example.com/b, driver: x}]", "20-b.yaml")
        config("defaults: {refresh: 5s, keep_lost: 1s}\nresources: [{name: example.com/a, driver: x}]", "10-a.yaml")
        config("not: [yaml", "notes.txt")
        config("not: [yaml", ".hidden.yaml")
        document = load(tmp_path)
        first, second = resources(document)
        assert [first.name, second.name] == ["example.com/a", "example.com/b"]
        assert {first.refresh, second.refresh} == {timedelta(seconds=5)}
        assert {first.keep_lost, second.keep_lost} == {timedelta(seconds=1)}
        assert document.kubelet.apis == ("v1beta1",)

    def test_two_files_may_not_disagree(self, config, tmp_path):
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

    def test_all_files_errors_at_once(self, config, tmp_path):
        config("resources: [x", "a.yaml")
        config("resources: [{name: a, driver: x}]", "b.yaml")
        assert [problem.split(": ")[0] for problem in problems_of(tmp_path)] == ["/a.yaml:1", "/b.yaml:1"]

    def test_an_empty_one(self, tmp_path):
        assert only_problem(tmp_path) == ": found no *.yaml in this directory, expected at least one"


def test_only_the_resources_of_a_node(config):
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


@pytest.mark.parametrize(
    "text",
    [
        "resources: !foo [a]",
        "resources: [{name: example.com/a, driver: x, env: {A: !!bool maybe}}]",
        "resources: [{name: example.com/a, driver: x, env: {A: !!int ''}}]",
        "resources: !!set abc",
        "resources: !!pairs abc",
        "resources:\n- &x\n  <<: *x\n",
    ],
)
def test_odd_tags_are_errors_like_others(config, text):
    assert problems_of(config(text))


def test_aliases_that_multiply_are_refused(config):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    assert "found more than 200000 values, with what aliases repeat" in only_problem(config("\n".join(lines)))


def test_a_file_that_never_ends_is_refused():
    assert "found more than 16777216 bytes" in only_problem(Path("/dev/zero"))
