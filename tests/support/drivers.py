"""Driver packages, and how they are found."""

import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

from dpgateway.drivers import discovery
from dpgateway.drivers.discovery import Found
from dpgateway.drivers.loading import Loading

GOOD = """
from dataclasses import dataclass
from dpgateway import Allocation, hookimpl

@dataclass(frozen=True)
class Options:
    count: int = 1

class Good:
    Options = Options
    def __init__(self, options, context): pass
    def devices(self): return []
    def allocate(self, devices): return Allocation()

@hookimpl
def dpgateway_driver():
    return Good
"""


HOLDS: dict[str, Callable[[], object]] = {}
"""What a driver's code does where it calls ``hold(name)``."""


def hold(name: str) -> None:
    HOLDS[name]()


def find(names: Iterable[str] | None = None, seconds: float = 10) -> dict[str, Found]:
    """The installed drivers among ``names`` (None: all), loaded; those that hang have a failure after the seconds."""
    loading = Loading(discovery.named(names))
    loading.wait(seconds)
    return loading.found()


class Site:
    """A directory on the path, into which distributions are put as pip would: a module, a dist-info, entry points."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self, source: str, *, module: str, drivers: dict[str, str] | None = None, distribution: str | None = None
    ) -> None:
        distribution = distribution or module.replace("_", "-")
        (self.folder / f"{module}.py").write_text(textwrap.dedent(source))
        info = self.folder / f"{distribution.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        points = "".join(f"{name} = {value}\n" for name, value in (drivers or {module: module}).items())
        (info / "entry_points.txt").write_text(f"[dpgateway]\n{points}")
