"""Files: what they say, where, and what is told of those that can't be read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgateway import Mount
from dpgateway.config import Shares, load, read
from tests.support.configurations import Write, only_problem, problems_of, resources


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
def test_a_file_that_is_no_configuration(config: Write, text: str, problem: str) -> None:
    assert only_problem(config(text)) == problem


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: b: c", 1), ("a:\n  b: 1\n c: 2", 3), ("a: [1", 1), ("a: 'x", 1), ("a: *b", 1), ("a: @b", 1), ("a\x00", 0)],
)
def test_broken_yaml_is_one_problem_with_its_line(config: Write, text: str, line: int) -> None:
    problem = only_problem(config(text))
    assert "found broken YAML" in problem
    assert problem.startswith(f":{line}: " if line else ": ")
    assert "\n" not in problem


def test_unreadable_files(tmp_path: Path) -> None:
    assert "no such file or directory" in only_problem(tmp_path / "none.yaml")
    file = tmp_path / "latin.yaml"
    file.write_bytes("é: 1".encode("latin-1"))
    assert "bytes that aren't UTF-8, at offset 0" in only_problem(file)
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    assert "can't be read" in only_problem(loop)


@given(st.text(max_size=40))
def test_no_text_makes_it_raise_anything_else(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    for problem in read(file)[1]:
        assert str(problem).startswith(str(file))


def test_a_value_by_alias_or_merge_has_the_place_where_it_is_written(config: Write) -> None:
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
def test_odd_tags_are_errors_like_others(config: Write, text: str) -> None:
    assert problems_of(config(text))


def test_aliases_that_multiply_are_refused(config: Write) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    assert "found more than 200000 values, with what aliases repeat" in only_problem(config("\n".join(lines)))


def test_a_file_that_never_ends_is_refused() -> None:
    assert "found more than 16777216 bytes" in only_problem(Path("/dev/zero"))
