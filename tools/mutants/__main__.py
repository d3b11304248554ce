"""How much the tests see: changes the program in one place at a time, and counts the changes that make a test fail.

``make mutants`` tests a sample of all possible changes, which the seed determines. It tells the fate of each, and lists
the survivors: each is a missing test, or a change that changes nothing. No tool at hand did this (2026): mutmut 3 takes
no sample and changes only what stands within functions; cosmic-ray takes none, runs one test command for all modules,
and can't remove a statement; mutatest takes a sample, but has not been kept since 2022 and Python 3.8.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tools.mutants.changing import Mutant, mutants
from tools.mutants.testing import WHOLE_LIMIT, Copy, whole

TREE = Path(__file__).resolve().parents[2]
MODULES = ("src/*/**/*.py", "backends/*/src/*/*.py")
GENERATED = "/wire/"


def sample(seed: int, count: int, only: str) -> list[Mutant]:
    """A sample of mutants of modules whose path contains ``only``, reproducible by its seed in the same tree."""
    files = sorted(path.relative_to(TREE) for pattern in MODULES for path in TREE.glob(pattern))
    wanted = [file for file in files if only in str(file) and GENERATED not in str(file)]
    all_of_them = [mutant for file in wanted for mutant in mutants(file, (TREE / file).read_bytes())]
    print(f"{len(all_of_them)} possible mutants of {len(wanted)} modules, seed {seed}", flush=True)
    return random.Random(seed).sample(all_of_them, min(count, len(all_of_them)))  # noqa: S311  no secret


def survivors(chosen: Sequence[Mutant], copies: Sequence[Copy]) -> list[Mutant]:
    """Tests the mutants, on all copies in parallel, and prints each mutant's fate."""
    todo: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in chosen:
        todo.put(mutant)
    fates: queue.SimpleQueue[tuple[Mutant, str | None, float]] = queue.SimpleQueue()

    def test(copy: Copy) -> None:
        while True:
            try:
                mutant = todo.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            fates.put((mutant, copy.killer(mutant), time.monotonic() - began))

    for copy in copies:
        threading.Thread(target=test, args=(copy,), daemon=True).start()
    alive = []
    for number in range(1, len(chosen) + 1):
        mutant, killer, took = fates.get()
        print(f"[{number:3}/{len(chosen)}] {mutant}\n          ", end="")
        print(f"killed by {killer}" if killer else "SURVIVED", f"({took:.0f} s)", flush=True)
        if not killer:
            alive.append(mutant)
    return alive


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which sample (1)")
    parser.add_argument("--count", type=int, default=100, help="how many mutants (100)")
    parser.add_argument("--only", default="", help="mutants of modules whose path contains this text, such as node/")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many at once (one for each core)")
    arguments = parser.parse_args()
    chosen = sample(arguments.seed, arguments.count, arguments.only)
    with tempfile.TemporaryDirectory(prefix="mutants-") as above:
        copies = [Copy(TREE, Path(above, str(number))) for number in range(arguments.workers)]
        print("first all tests without a mutant", flush=True)
        if failed := copies[0].failure([*whole(), f"-n{arguments.workers}", "--dist=loadfile"], WHOLE_LIMIT):
            sys.exit(f"without a mutant the tests fail, so they can't tell one: {failed}")
        alive = survivors(chosen, copies)
    killed = len(chosen) - len(alive)
    print(f"\nkilled {killed} of {len(chosen)} ({killed / len(chosen):.1%}), seed {arguments.seed}; survivors:")
    for mutant in sorted(alive, key=str):
        print(f"  {mutant}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
