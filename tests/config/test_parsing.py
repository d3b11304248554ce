"""YAML becomes plain values with their places; what people and YAML read differently is refused."""

import pytest

from dpgateway import Mount
from dpgateway.config import Shares
from dpgateway.config.parsing import DEEPEST, LONGEST_TAG, MOST_VALUES
from tests.support.configurations import Write, load, only_problem, problems_of, resources


def in_options(text: str) -> str:
    """A configuration whose driver gets ``text``, which begins in column 1 of line 5."""
    return f"resources:\n- name: example.com/a\n  driver: x\n  options:\n{text}"


def test_aliases_and_merges_keep_places(config: Write) -> None:
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


def test_anchored_scalars_keep_their_types(config: Write) -> None:
    text = (
        "resources: [{name: &n example.com/a, driver: &d x, shares: &s 2, mounts: [{host_path: /a, container_path: /b"
    )
    (resource,) = resources(load(config(text + ", read_only: &r false}]}]")))
    assert (resource.shares, resource.mounts) == (Shares(2), (Mount("/a", "/b", read_only=False),))
    assert type(resource.name) is str


def test_anchors_can_be_set_again(config: Write) -> None:
    (resource,) = resources(load(config(in_options("    a: [&x 1, *x, &x 2, *x]"))))
    assert resource.options["a"] == [1, 1, 2, 2]


@pytest.mark.parametrize("text", ["a: !foo [a]", "a: !!bool maybe", "a: !!int ''", "a: !!set {b}", "a: !!pairs abc"])
def test_a_tag_is_told_like_any_other_mistake(config: Write, text: str) -> None:
    assert only_problem(config(in_options(f"    {text}"))).startswith(":5: resources[0].options.a: found ")


@pytest.mark.parametrize("tag", ["str", "int", "float", "bool", "null", "merge", "timestamp", "value"])
@pytest.mark.parametrize("value", ["[a]", "{a: 1}"])
def test_scalar_tags_on_collections_are_refused(config: Write, tag: str, value: str) -> None:
    expected = f'found the tag "tag:yaml.org,2002:{tag}", expected a plain value, without a tag'
    assert only_problem(config(in_options(f"    a: !!{tag} {value}"))) == f":5: resources[0].options.a: {expected}"


@pytest.mark.parametrize("text", ["<<: 1", "<<: [{b: c}, 1]", "<<: *x"])
def test_only_mappings_can_be_merged(config: Write, text: str) -> None:
    assert "found << with " in only_problem(config(in_options(f"    x: &x [a]\n    a: {{{text}}}")))


def test_merge_precedence(config: Write) -> None:
    text = "    a: &a {x: 1, y: 1, z: 1}\n    b: &b {x: 2, y: 2, w: 2}\n    c: {x: 3, <<: [*a, *b]}"
    (resource,) = resources(load(config(in_options(text))))
    assert resource.options["c"] == {"x": 3, "y": 1, "z": 1, "w": 2}


def test_duplicate_keys_do_not_hide_other_errors(config: Write) -> None:
    path = config(
        in_options("    a: {b: 1, b: 2}\n    a: 3\n    1: x\n    true: x\n  refresh: 1\nkubelet: 5\nkubelet: 6")
    )
    assert [problem.partition(", expected")[0] for problem in problems_of(path)] == [
        ":5: resources[0].options.a.b: found a duplicate key",
        ":6: resources[0].options.a: found a duplicate key",
        ':7: resources[0].options["1"]: found the key 1',
        ":8: resources[0].options.true: found the key true",
        ":9: resources[0].refresh: found 1",
        ":10: kubelet: found 5",
        ":11: kubelet: found a duplicate key",
    ]
    assert problems_of(path)[-1].endswith(f"expected each key once; it is also at {path}:10")


@pytest.mark.parametrize("key", ["[a]", "{a: b}", "? [a]\n    "])
def test_a_key_that_is_no_scalar(config: Write, key: str) -> None:
    assert "found a list or a mapping as a key" in only_problem(config(in_options(f"    {key}: x")))


def test_a_key_with_half_a_character(config: Write) -> None:
    problem = only_problem(config(in_options('    "a\\ud800": 1')))
    assert problem.endswith(r'found the key "a\ud800", expected text that can be written in UTF-8, without NUL')


@pytest.mark.parametrize("number", ["1.10", "0o17", "0x1F", "1_000", "1e3", "-0", "+5", ".inf"])
def test_a_number_is_quoted_as_it_was_written(config: Write, number: str) -> None:
    path = config(f"resources:\n- {{name: example.com/a, driver: x, env: {{A: {number}}}}}")
    assert only_problem(path).endswith(f'env.A: found {number}, expected a string; put it in quotes: "{number}"')


def test_scalars_of_yaml_1_2(config: Write) -> None:
    written = "{a: 0o17, b: 0x1F, c: 1_000, d: -1.5e2, e: .5, f: TRUE, g: yes, h: ~, i: 2001-01-31, j: -.INF, k: <<}"
    (resource,) = resources(load(config(in_options(f"    {written}"))))
    expected = {"a": 15, "b": 31, "c": 1000, "d": -150.0, "e": 0.5, "f": True, "g": "yes", "h": None, "i": "2001-01-31"}
    assert resource.options == expected | {"j": float("-inf"), "k": "<<"}


@pytest.mark.parametrize("number", ["9223372036854775808", "9" * 5000, "0x" + "F" * 5000])
def test_numbers_beyond_64_bits(config: Write, number: str) -> None:
    problem = only_problem(config(in_options(f"    a: {number}")))
    assert problem.startswith(":5: resources[0].options.a: found ")
    assert "expected an integer of at most 64 bits" in problem
    assert len(problem) < 200


def test_aliases_that_multiply_are_refused(config: Write) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    assert "found more than 20000 values, with what aliases repeat" in only_problem(config("\n".join(lines)))


@pytest.mark.parametrize("text", ["&a {b: *a}", "a: &a\n  <<: *a", "[" * 100_000, "- " * 1_000 + "a", "a: &a [*a]"])
def test_recursive_and_deep_values_are_refused(config: Write, text: str) -> None:
    problem = f": found a value that contains itself, or is nested deeper than {DEEPEST} levels, expected plain values"
    assert only_problem(config(text)) == problem


@pytest.mark.parametrize("text", ["%YAML 1.3\n---\nresources: []", "%YAML 1.0\n---\na", "? \n%YAML 9.9\n---\n''"])
def test_a_version_of_yaml_that_there_is_not(config: Write, text: str) -> None:
    assert only_problem(config(text)) == ": found %YAML with an unknown version, expected YAML 1.2; leave that line out"


def test_too_many_values_stop_the_parser(config: Write) -> None:
    problem = only_problem(config("- a\n" * (MOST_VALUES + 1) + "a: b: the rest isn't even looked at"))
    assert problem.startswith(f": found more than {MOST_VALUES} values")


def test_a_tag_that_takes_long_to_read_is_refused(config: Write) -> None:
    problem = only_problem(config(f"a: !{'x' * 100_000} b"))
    assert problem == f": found a tag of more than {LONGEST_TAG} characters, expected plain values"


@pytest.mark.parametrize(
    "text",
    [
        "{long}: 1",
        "{name: {long}}",
        "{name: '{long}/x'}",
        "{name: example.com/a, driver: x, timeouts: {{long}: 1}}",
        "{name: example.com/a, driver: x, env: {{long}: !x 1}}",
        '{name: example.com/a, driver: x, env: {A{long}: "x\\0y"}}',
        "{name: example.com/a, driver: x, refresh: {long}}",
        "{name: example.com/a, driver: x, shares: {count: '9{long}'}}",
        "{name: example.com/a, driver: x, nodes: {a: !{long} b}}",
    ],
)
def test_what_is_said_of_a_long_text_is_short(config: Write, text: str) -> None:
    for long in ("x" * 50_000, "9" * 50_000):
        path = config("resources:\n- " + text.replace("{long}", long))
        assert all(len(problem) < 1_500 for problem in problems_of(path))
