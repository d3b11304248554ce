from pathlib import Path

import pytest

from dpgateway_simulator.prompt.script import ScriptError, read


def test_lines_with_comments(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    path.write_text("# a rehearsal\n\n  print files  # now\nkill\n")
    assert [(step.line, step.where) for step in read(path)] == [
        ("print files  # now", f"{path}:3"),
        ("kill", f"{path}:4"),
    ]


@pytest.mark.parametrize("text", ["- print files\n- kill\n", "steps:\n- print files\n- kill\n"])
def test_yaml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "steps.yaml"
    path.write_text(text)
    assert [step.line for step in read(path)] == ["print files", "kill"]
    assert read(path)[1].where == f"{path}:{text.count(chr(10))}"


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("s", "print files\ndance\n", "s:2: unknown step 'dance', expected one of"),
        ("s.yaml", "- kill\n- {pod: p1}\n", r"s.yaml:2: found a mapping, expected a step in one string"),
        ("s.yaml", "- 3\n-\n", r"(?s)s.yaml:1: found a number, .*s.yaml:2: found null, expected a step"),
        *[
            ("s.yaml", text, f"s.yaml:1: found {kind}, expected a list of steps")
            for text, kind in [
                ("kill\n", "a string"),
                ("", "null"),
                ("steps: true", "a boolean"),
                ("1.5", "a number"),
                ("kill: 1", "a mapping"),
                ("!x y", "another value"),
            ]
        ],
        *[
            ("s.yaml", text, "s.yaml: not YAML")
            for text in ("- 'kill\n", "[" * 500, "- 2001-99-99", "- !!bool x", "- !!omap 3", "%YAML 1.3\n---\n- kill")
        ],
    ],
)
def test_what_is_no_script(tmp_path: Path, name: str, text: str, error: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ScriptError, match=error):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("s", "wiat example.com/x=1\nkill\n\ndelete\nupgrade 1.99\n", ["s:1", "s:4", "s:5"]),
        ("s.yaml", "- wiat example.com/x=1\n- kill\n- {pod: p1}\n- delete\n", ["s.yaml:1", "s.yaml:3", "s.yaml:4"]),
    ],
)
def test_reports_all_wrong_lines(tmp_path: Path, name: str, text: str, lines: list[str]) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ScriptError) as caught:
        read(tmp_path / name)
    told = str(caught.value).splitlines()
    assert [line.partition(": ")[0] for line in told] == [f"{tmp_path}/{line}" for line in lines]
    assert told[0].endswith("unknown step 'wiat'; did you mean wait?")


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="can't be read"):
        read(tmp_path / "none")
