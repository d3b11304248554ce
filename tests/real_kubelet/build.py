"""Builds the programs that run kubelets' own code: python -m tests.real_kubelet.build [PROGRAM...].

Without names it builds all of them, and only those that aren't built from the sources as they are. It needs Go and the
Go module proxy; running the programs needs more, and this says so too. From cold caches count on about twenty minutes
of two cores, 3 GB of modules and 7 GB of Go's build cache; with warm caches it is under a minute.
"""

# ruff: noqa: T201 - it prints, as a program does

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.real_kubelet.programs import KUBELET, PROGRAMS, Program, cache
from tests.real_kubelet.recipe import compile_package, stage

GO_NEEDED = (1, 26)
DEBIAN = {"runc": "runc", "/bin/busybox": "busybox-static"}  # what the whole kubelet runs, and its package
GARBAGE = "400"
"""GOGC of the compilers. With Go's default, 100, a large package takes 17 s of CPU and not 12 (k8s.io/api/core/v1)."""
UNUSED_FOR = 14 * 24 * 3600  # seconds; another checkout may still use the binaries of its sources


def missing_to_build() -> list[str]:
    go = shutil.which("go")
    if not go:
        return ["Go isn't on PATH: install Go 1.26 or newer"]
    found = subprocess.run(
        ["go", "env", "GOVERSION"], cwd="/", capture_output=True, text=True, check=True
    ).stdout.strip()
    version = tuple(int(part) for part in found.removeprefix("go").split(".")[:2])
    return [] if version >= GO_NEEDED else [f"{go} is {found}: install Go 1.26 or newer"]


def missing_to_run() -> list[str]:
    if sys.platform != "linux":
        return [f"this is {sys.platform}: a kubelet runs on Linux"]
    missing = []
    if os.geteuid() != 0:
        missing.append("not root: the kubelet's directories are bind-mounted in a mount namespace; run as root")
    tools = ("unshare", "nsenter", "mount")
    missing += [f"no {name} on PATH: install util-linux" for name in tools if not shutil.which(name)]
    return missing + [f"no {name}: install {package}" for name, package in DEBIAN.items() if not shutil.which(name)]


def install_packages(packages: Mapping[str, str] = DEBIAN) -> None:
    """Debian's packages, by a program of each, where that can be done; else missing_to_run() says what is missing."""
    wanted = [package for name, package in packages.items() if not shutil.which(name)]
    if not wanted or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print(f"installing {' '.join(wanted)}", flush=True)
    subprocess.run(["apt-get", "update", "-qq"], check=False)  # an old index may do
    subprocess.run(["apt-get", "install", "-qq", "-y", "--no-install-recommends", *wanted], check=False)


def build(program: Program, jobs: int) -> None:
    """Builds all of it or nothing: a binary that is there under its final name is whole."""
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache(), prefix=".build-") as where:
        folder, binaries = stage(program, Path(where)), Path(where) / "bin"
        binaries.mkdir()
        for package in program.packages:
            name = program.name if package == "." else package.rpartition("/")[2]
            compile_package(program, package, folder, binaries / name, jobs)
        if not program.built:
            binaries.rename(program.directory)
    _remove_old(program)


def _remove_old(program: Program) -> None:
    program.directory.touch()
    for path in cache().glob(f"{program.name}-*"):
        if path != program.directory and time.time() - path.stat().st_mtime > UNUSED_FOR:
            shutil.rmtree(path)


def main() -> int:
    parser = argparse.ArgumentParser(description="build the programs that run kubelets' own code")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"any of {', '.join(PROGRAMS)}; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="how many compilers run at once (2)")
    given = parser.parse_args()
    unknown = set(given.programs) - set(PROGRAMS)
    if unknown:
        parser.error(f"no such program: {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}")
    wanted = [PROGRAMS[name] for name in given.programs or PROGRAMS]
    todo = [program for program in wanted if not program.built]
    print(f"{len(wanted) - len(todo)} of {len(wanted)} built already in {cache()}")
    if KUBELET in wanted:
        install_packages()
    missing = missing_to_build() if todo else []
    for text in missing + missing_to_run():
        print(f"missing: {text}", file=sys.stderr)
    return 1 if missing else build_all(todo, given.jobs)


def build_all(todo: list[Program], jobs: int) -> int:
    os.environ.setdefault("GOGC", GARBAGE)
    for number, program in enumerate(todo, 1):
        print(f"[{number}/{len(todo)}] {program.name} ...", flush=True)
        began = time.monotonic()
        try:
            build(program, jobs)
        except subprocess.CalledProcessError as error:
            print(f"{program.name}: {error}", file=sys.stderr)
            return 1
        size = sum(path.stat().st_size for path in program.directory.iterdir()) >> 20
        print(f"[{number}/{len(todo)}] {program.name}: {time.monotonic() - began:.0f} s, {size} MB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
