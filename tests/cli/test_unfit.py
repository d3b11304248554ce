"""What check says of devices that no container could get."""

import json

import pytest

from tests.support.drivers import GOOD, Site

pytestmark = pytest.mark.usefixtures("fake_driver")

CHARDEV = "driver: chardev, options: {paths: [/dev/null, /dev/zero]}"


def told(result, config):
    return [text.removeprefix(f"{config}:") for text in result.stdout.splitlines() if text.startswith(f"{config}:")]


def test_mount_over_a_node(line):
    mounts = "mounts: [{host_path: /etc, container_path: /x}, {host_path: /etc, container_path: /dev/null}]"
    config = line.config(f"resources:\n- {{name: example.com/a, {CHARDEV},\n   {mounts}}}\n")
    assert line("check", "--config", config).exit_code == 0
    result = line("check", "--config", config, "--devices")
    assert result.exit_code == 2
    (problem,) = told(result, config)
    assert problem == (
        "3: resources[0].mounts[1]: example.com/a: device null: it can't be given: mounts[1].container_path is "
        "'/dev/null', which is the path of its device node /dev/null; expected another one"
    )


def test_mount_missing_on_the_host(line):
    mounts = "mounts: [{host_path: /no/such, container_path: /x}]"
    config = line.config(f"resources:\n- {{name: example.com/a, {CHARDEV},\n   {mounts}}}\n")
    assert line("check", "--config", config).exit_code == 0, "it may be another host"
    why = "/no/such isn't there on this host, and is to be mounted"
    result = line("check", "--config", config, "--devices")
    assert result.exit_code == 2
    said = f"3: resources[0].mounts[0]: example.com/a: device null and 1 more: it can't be given: mounts[0]: {why}"
    assert told(result, config) == [said]
    result = line("devices", "--config", config)
    assert result.exit_code == 0
    assert result.stdout.count(why) == 2


def test_impossible_driver_options(line, tmp_path):
    (tmp_path / "net/a").mkdir(parents=True)
    (tmp_path / "class/x").mkdir(parents=True)
    (tmp_path / "class/x/a").symlink_to("../../net/a")
    mounts = "mounts: [{host_path: '/no/{kernel}', container_path: /x}]"
    options = f"options: {{match: {{subsystem: x}}, nodes: [], sysfs: {tmp_path}, {mounts}}}"
    config = line.config(f"resources:\n- {{name: example.com/a, driver: chardev,\n   {options}}}\n")
    result = line("check", "--config", config, "--devices")
    assert result.exit_code == 2
    why = "it can't be given: /no/a isn't there, and is to be mounted"
    assert told(result, config) == [f"3: resources[0].options: example.com/a: device a: {why}"]


def test_unhealthy_devices_are_warned_of(line):
    paths = "options: {paths: [/dev/null, /dev/gone, /dev/lost, /dev/full]}"
    config = line.config(f"resources:\n- {{name: example.com/a, driver: chardev,\n   {paths}}}\n")
    assert "Unhealthy" not in line("check", "--config", config).stdout
    result = line("check", "--config", config, "--devices")
    assert result.exit_code == 0
    why = "example.com/a: gone, lost would be Unhealthy: no such device node: /dev/gone"
    assert f"warning: {config}:2: {why}" in result.stdout.splitlines()
    found = json.loads(line("check", "--config", config, "--devices", "--output", "json").stdout)
    assert [(one["line"], one["hint"]) for one in found["warnings"] if "Unhealthy" in one["hint"]] == [(2, why)]


def test_few_lines_tell_of_many_unhealthy_devices(line, tmp_path):
    (tmp_path / "file").touch()
    for number in range(8):
        (tmp_path / f"link{number}").symlink_to(f"absent{number}")
    paths = ", ".join([*(f"/dev/none{number}" for number in range(12)), *(f"/dev/link{n}" for n in range(8))])
    options = f"{{dev: {tmp_path}, paths: [{paths}]}}"
    text = f"resources: [{{name: example.com/a, driver: chardev, options: {options}}}]"
    told = line("check", "--config", line.config(text), "--devices").stdout
    assert "none0, none1, none2 and 9 more would be Unhealthy: no such device node: /dev/none0" in told
    assert "4 more devices would be Unhealthy; `dpgateway devices` has the reasons" in told
    assert told.count("would be Unhealthy") == 6


def test_a_cdi_device_without_a_spec(line, fake_driver, tmp_path):
    preview = "def preview(self, device): return Allocation(cdi_devices=(f'v.example/c={device.id}',))"
    source = GOOD.replace("import Allocation", "import Allocation, Device").replace("return []", "return [Device('a')]")
    source = source.replace("def devices", f"{preview}\n    def devices")
    Site(fake_driver)(source, module="td_cdi")
    folder = tmp_path / "cdi"
    config = line.config(f"runtime: {{cdi_dirs: [{folder}]}}\nresources: [{{name: example.com/a, driver: td_cdi}}]")
    result = line("check", "--config", config, "--devices")
    assert result.exit_code == 0, "the spec may come later"
    assert (
        f"example.com/a: its devices would be Unhealthy: no spec has the CDI device v.example/c=a; looked in {folder}"
        in (result.stdout)
    )

    folder.mkdir()
    edits = {"containerEdits": {"env": ["A=1"]}}
    spec = {"cdiVersion": "0.3.0", "kind": "v.example/c", "devices": [{"name": "a", **edits}]}
    (folder / "c.json").write_text(json.dumps(spec))
    assert "CDI" not in line("check", "--config", config, "--devices").stdout
