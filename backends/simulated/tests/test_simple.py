"""simple-device-plugin's configuration, imported: the ids and the environment are the same."""

import pytest
from click.testing import CliRunner
from dpgateway_simulated import SimulatedDriver

from dpgateway.cli import main
from dpgateway.drivers import discovery
from dpgateway.testing import Recorder
from tests.support.configurations import complete, load

THEIRS = """\
apiVersion: v1
kind: ConfigMap
data:
  device_plugin_config.yaml: |
    resourceName: example.com/simple
    numberDevicesOnNode: 3
    pluginName: simple
    deviceIDPrefix: dev
    envPrefix: SIMPLE
"""


@pytest.fixture
def run(tmp_path):
    def run(text):
        (tmp_path / "theirs").write_text(text)
        line = [
            "import",
            "simple-device-plugin",
            str(tmp_path / "theirs"),
            "--output-file",
            str(tmp_path / "ours.yaml"),
        ]
        return CliRunner().invoke(main, line)

    return run


def test_the_same_ids_and_the_same_environment(run, tmp_path):
    assert (run(THEIRS).exit_code, run(THEIRS).exit_code) == (0, 2)
    document = load(tmp_path / "ours.yaml")
    (resource,) = complete(
        document, {name: one.load() for name, one in discovery.named(["simulated"]).items()}
    ).resources
    context = Recorder().context(resource.name)
    driver = SimulatedDriver(resource.options, context)
    devices = list(driver.devices())
    node = context.node_name
    assert (resource.name, [one.id for one in devices]) == ("example.com/simple", [f"dev-{node}-{n}" for n in range(3)])
    assert driver.allocate(devices[:2]).env == {f"SIMPLE_dev-{node}-{n}": f"/dev/dev-{node}-{n}" for n in range(2)}


def test_what_is_not_kept(run):
    more = THEIRS.replace("deviceIDPrefix: dev", "annotationPrefix: a\n    deviceFilePrefix: f")
    result = run(more)
    assert result.exit_code == 1
    told = [line.split(": ")[1:5] for line in result.stderr.replace(":8", ": 8").splitlines()]
    assert [line.split("example.com/simple: ")[1].partition(":")[0] for line in result.stderr.splitlines()] == [
        "annotationPrefix",
        "deviceFilePrefix",
        "the ids",
    ], told


def test_what_makes_no_sense_is_refused(run):
    assert run("a: b\n").exit_code == 2
    assert "numberDevicesOnNode: found nothing, expected a value" in run("resourceName: a.b/c\n").stderr
