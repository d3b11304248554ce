"""With an importer of a package of its own. What those of this repository make is tested beside them."""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpgateway.cli import main
from tests.support.gateway import COMMAND

IMPORTER = """
from dpgateway.importing import Imported, NotKept, ImportedResource

def old(source):
    named = list(source.holding("name"))
    if not named:
        raise source.nothing("a name")
    name = named[0].below("name")
    not_kept = (NotKept(name.place, "the colour", "there are no colours", name.value),) if "red" in name.value else ()
    more = {"shares": 2}
    resource = ImportedResource(name.value, name.place, "some", {"paths": ["/dev/x"]}, more, ("be warm",))
    return Imported((resource,), not_kept)
"""
OURS = """\
# What old served, made from theirs by dpgateway import.
resources:

  # From theirs:2.
  # Be warm.
  - name: example.com/blue
    driver: some
    options:
      paths: [/dev/x]
    shares: 2
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Imports a text."""
    info = tmp_path / "site/old-1.2.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site/old_importer_module.py").write_text(IMPORTER)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: old\nVersion: 1.2\n")
    points = "old = old_importer_module:old\nbroken = no_such_module_anywhere:old\n"
    (info / "entry_points.txt").write_text(f"[dpgateway.importers]\n{points}")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path)

    def run(text, *words):
        (tmp_path / "theirs").write_bytes(text if isinstance(text, bytes) else text.encode())
        return CliRunner().invoke(main, ["import", *words])

    yield run
    sys.modules.pop("old_importer_module", None)


def test_all_is_kept(run):
    result = run("# their file\nname: example.com/blue\n", "old", "theirs")
    assert (result.exit_code, result.stdout, result.stderr) == (0, OURS, "warning: example.com/blue: be warm\n")


def test_something_is_not_kept(run):
    result = run("name: example.com/red\n", "old", "theirs")
    assert result.exit_code == 1
    lost = "not kept: theirs:1: name: example.com/red: the colour: there are no colours\n"
    assert result.stderr == lost + "warning: example.com/red: be warm\n"
    assert "  # Be warm.\n  # Not kept: the colour: there are no colours.\n  - name: example.com/red\n" in result.stdout


def test_a_broken_document(run):
    result = run("name: example.com/blue\n---\na: [1\nb: 2", "old", "theirs")
    assert result.exit_code == 1
    assert "not kept: theirs:4: the entry of line 4: found broken YAML" in result.stderr
    assert "# Not kept: the entry of line 4: found broken YAML" in result.stdout


def test_json(run):
    result = run("name: example.com/red\n", "old", "theirs", "--output", "json")
    told = json.loads(result.stdout)
    assert told.pop("configuration").startswith("# What old served")
    assert told == {
        "resources": ["example.com/red"],
        "warnings": [{"resource": "example.com/red", "warnings": ["be warm"]}],
        "not_kept": [
            {
                "file": "theirs",
                "line": 1,
                "column": 1,
                "key": "name",
                "what": "the colour",
                "why": "there are no colours",
                "resource": "example.com/red",
            }
        ],
    }


def test_overwriting_needs_an_option(run, tmp_path):
    ours = tmp_path / "ours.yaml"
    ours.write_text("mine")
    line = ("old", "theirs", "--output-file", "ours.yaml")
    refused = run("name: example.com/blue\n", *line)
    assert (refused.exit_code, ours.read_text()) == (2, "mine")
    assert refused.stderr == "--output-file: ours.yaml exists, expected a new file; --force overwrites it\n"
    done = run("# theirs\nname: example.com/blue\n", *line, "--force")
    assert (done.exit_code, done.stdout, ours.read_text()) == (0, "", OURS)


@pytest.fixture
def no_room():
    """A disk that takes files of some bytes only."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(OURS) // 2, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(("before", "more"), [({}, ()), ({}, ("--force",)), ({"ours.yaml": "mine"}, ("--force",))])
def test_a_full_disk_leaves_no_half_of_it(run, tmp_path, no_room, before, more):
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    result = run("name: example.com/blue\n", "old", "theirs", "--output-file", "ours.yaml", *more)
    assert (result.exit_code, result.stderr) == (1, "Error: ours.yaml can't be written: File too large\n")
    assert {one.name: one.read_text() for one in tmp_path.glob("*ours*")} == before


def test_a_full_disk_leaves_no_half_of_it_behind_a_link(run, tmp_path, no_room):
    (tmp_path / "ours.yaml").symlink_to("new.yaml")
    run("name: example.com/blue\n", "old", "theirs", "--output-file", "ours.yaml", "--force")
    assert ((tmp_path / "ours.yaml").is_symlink(), (tmp_path / "new.yaml").exists()) == (True, False)


def test_overwriting_keeps_the_mode_and_the_link(run, tmp_path):
    ours, link = tmp_path / "ours.yaml", tmp_path / "link.yaml"
    ours.write_text("mine")
    ours.chmod(0o640)
    link.symlink_to("ours.yaml")
    run("# theirs\nname: example.com/blue\n", "old", "theirs", "--output-file", "link.yaml", "--force")
    assert (ours.read_text(), ours.stat().st_mode & 0o777, link.is_symlink()) == (OURS, 0o640, True)


@pytest.mark.usefixtures("run")
def test_a_file_that_is_mounted_by_itself_is_overwritten(tmp_path):
    """As a container has it: no other file can take its name."""
    (tmp_path / "theirs").write_text("# theirs\nname: example.com/blue\n")
    (tmp_path / "ours.yaml").write_text("mine")
    mounted = 'mount --bind ours.yaml ours.yaml && exec "$@"'
    words = ("import", "old", "theirs", "--output-file", "ours.yaml", "--force")
    paths = os.pathsep.join([str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = ["unshare", "--mount", "sh", "-c", mounted, "sh", *COMMAND, *words]
    subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths})
    assert (tmp_path / "ours.yaml").read_text() == OURS
    assert not [*tmp_path.glob(".ours*")]


def test_what_can_be_imported(run):
    rows = {line.split()[0]: line.split()[1] for line in run("").stdout.splitlines()[1:]}
    assert rows["old"] == rows["broken"] == "old"
    assert {"name": "old", "distribution": "old"} in json.loads(run("", "--output", "json").stdout)


@pytest.mark.parametrize(
    ("plugin", "told"),
    [
        (
            "k8s-device-plugin",
            "take examples/amd-gpu.yaml or examples/gke-nvidia-gpu.yaml, which docs/how-to/replace-a-",
        ),
        ("nvidia/gpu", "take examples/gke-nvidia-gpu.yaml, which docs/how-to/replace-a-plugin.md explains"),
        ("xilinx", "take examples/xilinx-fpga.yaml, which docs/how-to/replace-a-plugin.md explains"),
        ("kubevirt-gpu-device-plugin", "take examples/kubevirt-pci.yaml, which docs/how-to/replace-a-"),
        ("fuse-device-plugin", "-plugin; docs/how-to/replace-a-plugin.md has examples of others, and docs/how-to/"),
        ("generic-device-plugn", "did you mean generic-device-plugin?; docs/how-to/replace-a-plugin.md has examples"),
        ("acme", "; docs/how-to/replace-a-plugin.md has examples of others"),
    ],
)
@pytest.mark.parametrize("words", [("theirs",), ()])
def test_a_plugin_that_is_not_known(run, plugin, told, words):
    result = run("", plugin, *words)
    assert result.exit_code == 2
    assert told in result.stderr
    for path in re.findall(r"(?:examples|docs)/[\w./-]+\w", result.stderr):
        assert (Path(__file__).parents[2] / path).is_file()


@pytest.mark.parametrize("plugin", ["intel-gpu-plugin", "Intel", "qat", "GpuDevicePlugin"])
def test_other_names(run, plugin):
    result = run("kind: GpuDevicePlugin\nspec: {}\n", plugin, "theirs")
    assert result.stdout.startswith("# What intel-device-plugins served")


@pytest.mark.parametrize(
    ("text", "words", "code", "told"),
    [
        ("", ("oldd", "theirs"), 2, "PLUGIN: found 'oldd', expected "),
        ("", ("old",), 2, "FILE: found nothing, expected the file that has the configuration of old"),
        ("", ("broken", "theirs"), 1, "Error: broken of old can't be loaded: ModuleNotFoundError: "),
        ("", ("old", "nowhere"), 2, "nowhere: found a file that can't be read (No such file or directory)"),
        ("colour: red", ("old", "theirs"), 2, "theirs: found nothing of it, expected a name"),
        ("a: [1\nb: 2", ("old", "theirs"), 2, "theirs:2: found broken YAML"),
        (b"a: \xff", ("old", "theirs"), 2, "theirs:1: found bytes that aren't UTF-8, expected text in UTF-8"),
    ],
)
def test_what_is_wrong(run, text, words, code, told):
    result = run(text, *words)
    assert (result.exit_code, result.stdout) == (code, "")
    assert told in result.stderr
