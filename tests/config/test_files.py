"""Files: what they say, where, and what is told of those that can't be read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgateway.config import read
from tests.support.configurations import Write, only_problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ": found an empty file, expected resources; see docs/reference/configuration.md"),
        ("# nothing\n", ": found an empty file, expected resources; see docs/reference/configuration.md"),
        ("- a", ":1: found a list, expected a mapping with the keys resources, defaults, kubelet"),
        ("a:\n\t- b", ":2: found a tab, expected spaces; YAML is indented with spaces only"),
        ("resources: []\n---\nresources: []", ":2: found a second document ('---'), expected one document per file"),
        ("kubelet: {}", ": resources: found no resources, expected a list of resources"),
        ("resources: x", ':1: resources: found "x", expected a list'),
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


def test_a_file_that_never_ends_is_refused() -> None:
    assert "found more than 1048576 bytes" in only_problem(Path("/dev/zero"))
