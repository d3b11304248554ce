"""The programs that run kubelets' own code: where each one's sources are, and where its binary is once built.

Binaries live outside the tree, in $DPGATEWAY_KUBELETS or else $XDG_CACHE_HOME/dpgateway/kubelets. The name of each has
a hash of its sources in it, so that a binary of other sources is never taken for it. `build.py` builds them.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEVICE_MANAGERS = HERE / "device_managers"
RECIPE = HERE / "recipe.py"  # how sources become binaries: when it changes, everything is built again


class MissingProgramError(RuntimeError):
    """A program was asked for that nobody has built from these sources."""


@dataclass(frozen=True)
class Program:
    """A folder with a go.mod, and the `packages` in it or named by it that are built, one binary for each."""

    name: str
    folder: Path
    shared: tuple[Path, ...] = ()  # files and folders compiled in from beside it
    packages: tuple[str, ...] = (".",)
    ldflags: str = ""
    tags: str = ""

    @property
    def key(self) -> str:
        found = hashlib.sha256()
        for path in self._sources():
            found.update(f"{os.path.relpath(path, HERE)}\0{path.stat().st_size}\0".encode())
            found.update(path.read_bytes())
        return found.hexdigest()[:12]

    def _sources(self) -> Iterator[Path]:
        for root in (self.folder, *self.shared, RECIPE):
            yield from sorted(path for path in root.rglob("*") if path.is_file()) if root.is_dir() else (root,)

    @property
    def directory(self) -> Path:
        """Where its binaries are, built or not."""
        return cache() / f"{self.name}-{self.key}"

    @property
    def built(self) -> bool:
        return self.directory.is_dir()

    def binary(self, name: str = "") -> Path:
        """One of its binaries, the only one by default; raises MissingProgramError."""
        if not self.built:
            raise MissingProgramError(
                f"{self.name} isn't built from these sources: no {self.directory}; "
                f"run python -m tests.real_kubelet.build {self.name}"
            )
        return self.directory / (name or self.name)


def cache() -> Path:
    given = os.environ.get("DPGATEWAY_KUBELETS")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else base / "dpgateway" / "kubelets"


def _device_manager(release: str) -> Program:
    shared = (*sorted(DEVICE_MANAGERS.glob("*.go")), DEVICE_MANAGERS / "stubs")
    return Program(f"device-manager-{release}", DEVICE_MANAGERS / f"v{release.replace('.', '_')}", shared)


RELEASES = tuple(
    f"1.{minor}" for minor in sorted(int(folder.name.removeprefix("v1_")) for folder in DEVICE_MANAGERS.glob("v1_*"))
)
VERSION = "k8s.io/component-base/version"
KUBELET = Program(
    "kubelet",
    HERE / "kubelet",
    ldflags=f"-X {VERSION}.gitVersion=v1.37.1 -X {VERSION}.gitMajor=1 -X {VERSION}.gitMinor=37",
)
# Debian 12's containerd, 1.6, drops the names of CDI devices in silence; this one honours them.
CONTAINERD_V2 = "github.com/containerd/containerd/v2"
CONTAINERD = Program(
    "containerd",
    HERE / "containerd",
    packages=tuple(f"{CONTAINERD_V2}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
    ldflags=f"-X {CONTAINERD_V2}/version.Version=v2.4.2",
    tags="no_btrfs,no_devmapper,no_zfs,no_aufs,urfave_cli_no_docs,osusergo,netgo",
)
PROGRAMS = {program.name: program for program in (*map(_device_manager, RELEASES), KUBELET, CONTAINERD)}
