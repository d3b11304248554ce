"""Imports what another plugin is told, and loads what was written as the gateway does."""

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from dpgateway_chardev import CharDevices
from dpgateway_chardev.options import CharDeviceOptions

from dpgateway.cli import main
from dpgateway.config import ResourceConfig
from dpgateway.drivers import discovery
from dpgateway.testing import FakeTree, Recorder
from tests.support.configurations import complete, load


@dataclass(frozen=True)
class Written:
    code: int
    resources: dict[str, ResourceConfig]
    not_kept: list[dict[str, object]]
    text: str
    tree: FakeTree

    def plain(self, name):
        """What the resource's options say that isn't the default."""
        options, default = self.resources[name].options, CharDeviceOptions(paths=("/dev/none",))
        return {
            key: value
            for key in CharDeviceOptions.__dataclass_fields__
            if (value := getattr(options, key)) != getattr(default, key)
        }

    def given(self, name):
        """By id: what each healthy device gives to a container."""
        self.tree.write("/var/run/")
        roots = {**self.tree.roots, "host": str(self.tree.path)}
        driver = CharDevices(replace(self.resources[name].options, **roots), Recorder().context(name))
        try:
            found = [one for one in driver.devices() if one.health.ok]
            return {one.id: driver.allocate([one]) for one in found}
        finally:
            driver.close()

    def nodes(self, name):
        """By id: the nodes as (host, container, permissions)."""
        return {
            id_: [(one.host_path, one.container_path or one.host_path, one.permissions) for one in given.device_nodes]
            for id_, given in self.given(name).items()
        }

    @property
    def lost(self):
        return [(one["line"], one["key"], one["resource"], one["what"]) for one in self.not_kept]


@dataclass(frozen=True)
class Importing:
    directory: Path
    tree: FakeTree

    def __call__(self, plugin, text, *more):
        ours = self.directory / "ours.yaml"
        result = self.invoke(plugin, text, *more, "--output", "json", "--output-file", str(ours), "--force")
        assert result.exit_code in {0, 1}, result.output
        told = json.loads(result.stdout)
        assert told["configuration"] == ours.read_text()
        document = load(ours)
        drivers = {name: one.load() for name, one in discovery.named(document.drivers).items()}
        resources = {one.name: one for one in complete(document, drivers).resources}
        assert list(resources) == told["resources"]
        return Written(result.exit_code, resources, told["not_kept"], told["configuration"], self.tree)

    def refused(self, plugin, text, *more):
        """The message about something that can't be understood."""
        result = self.invoke(plugin, text, *more)
        assert (result.exit_code, result.stdout) == (2, "")
        return result.stderr.replace(str(self.directory / "theirs"), "theirs").splitlines()

    def invoke(self, plugin, text, *more):
        theirs = self.directory / "theirs"
        theirs.write_text(text)
        return CliRunner().invoke(main, ["import", plugin, str(theirs), "--dev", str(self.tree.at("/dev")), *more])


@pytest.fixture
def importing(tmp_path, tree):
    return Importing(tmp_path, tree)


@pytest.fixture
def imported(importing, request):
    """Imports what the module's PLUGIN is told."""
    return partial(importing, request.module.PLUGIN)
