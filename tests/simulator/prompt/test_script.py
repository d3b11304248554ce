from pathlib import Path

import pytest

from dpgateway_simulator.prompt.script import ScriptError, Step, read


def test_lines_with_comments(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    path.write_text("# a rehearsal\n\n  print files  # now\nkill\n")
    assert read(path) == [Step("print files  # now", f"{path}:3"), Step("kill", f"{path}:4")]


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
        ("s.yaml", "- kill\n- {pod: p1}\n", r"s.yaml:2: found .*expected a step in one string"),
        ("s.yaml", "kill\n", "s.yaml:1: found str, expected a list of steps"),
        ("s.yaml", "- 'kill\n", "s.yaml: not YAML"),
    ],
)
def test_what_is_no_script(tmp_path: Path, name: str, text: str, error: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ScriptError, match=error):
        read(tmp_path / name)


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="can't be read"):
        read(tmp_path / "none")
