"""A driver package on the path, a configuration, and the command line to use them with."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dpgateway.cli import main

FAKE = """
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from dpgateway import Allocation, Candidate, Device, DriverError, Health, hookimpl

@dataclass(frozen=True)
class Inner:
    depth: int = field(default=0, metadata={"help": "how deep"})

@dataclass(frozen=True)
class Options:
    mode: str = field(metadata={"help": "what to do"})
    wait: timedelta = field(default=timedelta(seconds=90), metadata={"help": "how long", "per_claim": True})
    inner: Inner = field(default=Inner(), metadata={"help": "more"})
    def claims(self):
        return ["x"] if self.mode == "claim" else []
    def warnings(self, others):
        if self.mode == "doubt":
            raise ZeroDivisionError("oops")
        if self.mode == "ponder":
            threading.Event().wait()
        return ()

class Fake:
    Options = Options
    def __init__(self, options, context):
        self.options, self.context = options, context
        if options.mode == "refuse":
            raise DriverError("there is no such board")
    def devices(self):
        getattr(self, self.options.mode)()
        known = {"attributes": {"serial": "A1", "good": True, "path": "/x" * 30}, "hardware": ("pci 0000:3b:00.0",)}
        return [
            Device(f"{self.context.node_name}-0", numa_nodes=(0, 1), **known),
            Device("bad\\x1b[2J", Health.unhealthy("no power")),
        ] * (2 if self.options.mode == "twice" else 1)
    def explain(self, about):
        if self.options.mode == "unexplained":
            return 3
        failed = {"test": "vendor", "found": "'0x10de'", "expected": "0x8086"}
        outcomes = [{"device": one.id} for one in self.devices()] + [failed]
        slots = [Candidate(f"slot {number}", f"/sys/slots/{number}", **one) for number, one in enumerate(outcomes)]
        return [one for one in slots if about in {None, one.name}]
    def list(self): pass
    def unexplained(self): pass
    def twice(self): pass
    def chat(self): self.context.log.info("looking around")
    def hang(self): threading.Event().wait()
    def leave(self): raise SystemExit(3)
    def bug(self): raise ZeroDivisionError("oops")
    def allocate(self, devices): return Allocation()
    def close(self): print("closed", self.context.resource)

@hookimpl
def dpgateway_driver():
    return Fake
"""


@pytest.fixture
def fake_driver(tmp_path, monkeypatch):
    """Installs the drivers ``fake`` and ``broken`` of the distribution fake-driver 1.2."""
    site = tmp_path / "site"
    info = site / "fake_driver-1.2.dist-info"
    info.mkdir(parents=True)
    (site / "fake_driver_module.py").write_text(FAKE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-driver\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[dpgateway]\nfake = fake_driver_module\nbroken = no_such_module_anywhere\n")
    monkeypatch.syspath_prepend(site)
    yield site
    sys.modules.pop("fake_driver_module", None)


@dataclass(frozen=True)
class Line:
    """The command line, with a configuration file to write."""

    directory: Path

    def config(self, text):
        file = self.directory / "config.yaml"
        file.write_text(text)
        return file

    def __call__(self, *arguments, **environment) -> Result:
        clean = {"NODE_NAME": None} | environment
        return CliRunner().invoke(main, [str(one) for one in arguments], env=clean, prog_name="dpgateway")


@pytest.fixture
def line(tmp_path, log_put_back):
    return Line(tmp_path)
