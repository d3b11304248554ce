"""Runs the tests against a mutant, in a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tools.mutants.changing import Mutant

MIRROR_LIMIT, WHOLE_LIMIT = 120, 1800
"""Seconds for the tests of one module, and for all tests; a longer run counts as a hanging mutant."""
MEMORY = 8 << 30
"""Bytes of address space, so that a mutant's endless allocation hurts no other process."""
UNSUITABLE = ("benchmarks", "deploy", "real_kubelet", "scenarios", "tools")
"""Folders of tests/ that don't test ``src`` or ``backends``, or need programs of their own."""
COPIED = ("src", "backends", "tests", "docs", "protos", "tools", "deploy", "conftest.py", "pyproject.toml", "README.md")
FOLDERS = {"dpgateway": (), "dpgateway_simulator": ("simulator",), "dpgateway_start": ("end_to_end",)}
"""The folder below tests/ with the tests of each package."""
IN_PLACE = 'for name in *; do mount --bind "$name" "$0/$name"; done && cd "$0" && exec "$@"'
"""A script for sh in a new mount namespace: mounts the copy over the tree, and runs a command there."""


class Copy:
    """A copy of the tree, in which one mutant after another is tested.

    The tests see it in the tree's place, where installed commands find the program; else a process started by a test
    would run without the mutant.
    """

    def __init__(self, tree: Path, place: Path) -> None:
        self.tree, self.place, self._tested = tree, place, 0
        place.mkdir()
        for name in COPIED:
            source = tree / name
            if source.is_dir():
                shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("*.egg-info"))
            else:
                shutil.copy2(source, place / name)

    def killer(self, mutant: Mutant) -> str | None:
        """The test that fails: one that mirrors the mutant's module, else any other; None if the mutant survives."""
        file = self.place / mutant.file
        original, status = file.read_bytes(), file.stat()
        file.write_bytes(mutant.apply(original))
        self._tested += 1
        os.utime(file, (0, self._tested))  # bytecode is valid per mtime in seconds, and mutants follow each other fast
        try:
            return self.failure(mirror(self.place, mutant.file), MIRROR_LIMIT) or self.failure(whole(), WHOLE_LIMIT)
        finally:
            file.write_bytes(original)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # makes the original's bytecode valid again

    def failure(self, arguments: Sequence[str], limit: float) -> str | None:
        """The failure of a pytest run: a test, or a text; None if it passes."""
        in_place = ["unshare", "--mount", "--propagation=private", "sh", "-ec", IN_PLACE, str(self.tree)]
        pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        process = subprocess.Popen(
            [*in_place, "prlimit", f"--as={MEMORY}", *pytest, *arguments],
            cwd=self.place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return f"nothing came back in {limit:g} s"
        finally:
            _end(process)
        if process.returncode == 0:
            return None
        found = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        return found[1] if found else f"pytest ended with {process.returncode}: {output[-200:]}"


def _end(process: subprocess.Popen[str]) -> None:
    """Kills pytest and its leftover processes, which a mutant may have kept it from ending."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def mirror(tree: Path, file: Path) -> list[str]:
    """The tests that mirror a module: its file, else the nearest folder that mirrors a folder above it."""
    parts = file.parts
    if parts[0] == "backends":
        tests, inner = Path(*parts[:2], "tests"), parts[4:]
    else:
        tests, inner = Path("tests"), (*FOLDERS[parts[1]], *parts[2:])
    folder = tests.joinpath(*inner[:-1])
    if own := sorted((tree / folder).glob(f"test_{file.stem}.py")):
        return [str(path.relative_to(tree)) for path in own]
    while not any((tree / folder).rglob("test_*.py")):
        folder = folder.parent
    return whole() if folder == Path("tests") else [str(folder)]


def whole() -> list[str]:
    return ["tests", "backends", *(f"--ignore=tests/{name}" for name in UNSUITABLE)]
