"""Files: what they say, where, and what is told of those that can't be read."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgateway.config import read
from tests.support.configurations import Write, load, only_problem
from tests.support.gateway import COMMAND


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ": found an empty file, expected resources; see docs/reference/configuration.md"),
        ("# nothing\n", ": found an empty file, expected resources; see docs/reference/configuration.md"),
        ("!x {resources: []}", ':1: found the tag "!x", expected a plain value, without a tag'),
        (
            "- a",
            (
                ":1: found a list, expected a mapping with the keys resources, defaults, kubelet, state_dir, runtime, "
                "dra, cluster, web"
            ),
        ),
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
    [("a: b: c", 1), ("a:\n  b: 1\n c: 2", 3), ("a: [1", 1), ("a: 'x", 1), ("a\nb: 1\x00", 2)],
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
    assert only_problem(file).startswith(":1: found bytes that aren't UTF-8, 0xe9")
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    assert "can't be read" in only_problem(loop)


@given(st.text(max_size=40))
def test_no_text_makes_it_raise_anything_else(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    for problem in read(file)[1]:
        assert str(problem).startswith(str(file))


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_bytes(b"#" * 1048577)
    assert "found more than 1048576 bytes" in only_problem(file)


@pytest.mark.parametrize("name", ["config.yaml", ""])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "config.yaml")
    told = "found a named pipe, expected a file; write the configuration into a file"
    assert only_problem(tmp_path / name).endswith(told)


def test_a_directory_among_the_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").mkdir()
    assert only_problem(tmp_path).startswith("/a.yaml: found a directory, expected a file")


def test_a_file_that_cannot_be_read_may_have_the_resources(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").mkdir()
    (tmp_path / "b.yaml").write_text("state_dir: /a")
    assert only_problem(tmp_path).startswith("/a.yaml: found a directory, expected a file")


class TestOwner:
    """The tests run as root."""

    @pytest.fixture
    def file(self, config: Write) -> Path:
        return config("resources: []")

    def test_a_file_that_others_can_write(self, file: Path) -> None:
        for mode in (0o664, 0o646):
            file.chmod(mode)
            assert only_problem(file) == (
                f": found a mode that lets others write it, {mode:04o}, expected only root to own it and to write it, "
                f"because the gateway runs as root; chmod go-w {file}"
            )

    def test_a_file_of_somebody_else(self, file: Path) -> None:
        os.chown(file, 1000, 0)
        told = only_problem(file)
        assert told.startswith(": found user 1000 as its owner, expected only root")
        assert told.endswith(f"; chown root {file}")

    def test_an_unsafe_directory_is_refused(self, file: Path) -> None:
        file.parent.chmod(0o777)
        assert "found a mode that lets others write it, 0777" in only_problem(file.parent)
        load(file)  # who may write there still can't make a file of root's
        file.parent.chmod(0o755)
        os.chown(file.parent, 1000, 0)
        assert "found user 1000 as its owner" in only_problem(file.parent)

    def test_a_file_in_a_directory(self, file: Path) -> None:
        file.chmod(0o666)
        assert only_problem(file.parent).startswith("/config.yaml: found a mode that lets others write it")

    def test_a_read_only_config_map_is_safe(self, tmp_path: Path) -> None:
        """As the kubelet makes it: pkg/volume/util/atomic_writer.go, pkg/volume/emptydir/empty_dir.go (0777)."""
        volume = tmp_path / "volume"
        (volume / "..2026_01_01").mkdir(parents=True)
        (volume / "..2026_01_01/config.yaml").write_text("resources: []")
        (volume / "..data").symlink_to("..2026_01_01")
        (volume / "config.yaml").symlink_to("..data/config.yaml")
        assert load(volume / "config.yaml") == replace(load(volume), path=volume / "config.yaml")
        volume.chmod(0o777)
        assert "0777" in only_problem(volume)
        mounted = f'mount --bind {volume} {volume} && mount -o remount,ro,bind {volume} && exec "$@"'
        command = ["unshare", "-m", "sh", "-c", mounted, "sh", *COMMAND, "check", "--config", str(volume)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert f"{volume} is valid" in done.stdout, done.stderr
        (volume / "..data/config.yaml").chmod(0o666)
        assert "found a mode that lets others" in only_problem(volume / "config.yaml")

    def test_unsafe_files_are_allowed_without_root(self, file: Path) -> None:
        file.chmod(0o666)
        reader = "import dpgateway.config.document, dpgateway.config.parsing, encodings.utf_8_sig, os; "
        reader += "from pathlib import Path; "
        file.parent.chmod(0o755)
        as_nobody = f"{reader} os.seteuid(65534); raise SystemExit(len(dpgateway.config.read(Path('config.yaml'))[1]))"
        subprocess.run([sys.executable, "-c", as_nobody], check=True, cwd=file.parent)
