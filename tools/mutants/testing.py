"""Tests that see a mutant or don't, in a copy of the tree."""

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
"""Seconds that the tests of one module, and all tests, may take; longer is taken for a mutant that hangs."""
MEMORY = 8 << 30
"""Bytes of address space; a mutant that allocates without end hurts no other process."""
UNSUITABLE = ("benchmarks", "deploy", "real_kubelet", "scenarios", "tools")
"""Folders of tests/ that look at other things than ``src`` and ``backends``, or need programs of their own."""
COPIED = ("src", "backends", "tests", "docs", "protos", "tools", "deploy", "conftest.py", "pyproject.toml", "README.md")
FOLDERS = {"dpgateway": (), "dpgateway_simulator": ("simulator",), "dpgateway_start": ("end_to_end",)}
"""Where in tests/ the tests of each package are."""
IN_PLACE = 'for name in *; do mount --bind "$name" "$0/$name"; done && cd "$0" && exec "$@"'
"""For sh in the copy, in a mount namespace of its own: the copy stands where the tree is, and a command runs there."""


class Copy:
    """A copy of the tree, in which one mutant after another is tested.

    Its tests see it where the tree is, because that is where an installed command finds the program: else a process
    that a test starts would run without the mutant.
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
        """The test that sees the mutant: one of the tests that mirror its module, else any; None if none does."""
        file = self.place / mutant.file
        original, status = file.read_bytes(), file.stat()
        file.write_bytes(mutant.apply(original))
        self._tested += 1
        os.utime(file, (0, self._tested))  # by it Python knows what it compiled; two mutants may be of the same second
        try:
            return self.failure(mirror(self.place, mutant.file), MIRROR_LIMIT) or self.failure(whole(), WHOLE_LIMIT)
        finally:
            file.write_bytes(original)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # as its compiled form remembers it

    def failure(self, arguments: Sequence[str], limit: float) -> str | None:
        """What failed in a run of pytest, or None."""
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
    """Kills pytest's leftover processes, because a mutant may have kept it from doing so."""
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
