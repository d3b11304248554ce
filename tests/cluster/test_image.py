"""The image, as an archive: what is in it, how large it is, and that it runs as it is."""

import json
import os
import re
import signal
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "deploy/image/Dockerfile").read_text()
MB = 1_000_000


class Archive:
    def __init__(self, path):
        with tarfile.open(path) as tar:
            manifest = json.loads(self.read(tar, "index.json"))["manifests"][0]
            self.name = manifest["annotations"]["io.containerd.image.name"]
            self.manifest = json.loads(self.read(tar, self.blob(manifest)))
            self.config = json.loads(self.read(tar, self.blob(self.manifest["config"])))["config"]

    @staticmethod
    def read(tar, name):
        file = tar.extractfile(name)
        assert file is not None
        return file.read()

    @staticmethod
    def blob(described):
        return "blobs/" + described["digest"].replace(":", "/")


@pytest.fixture(scope="module")
def archive(image):
    return Archive(image)


@pytest.fixture(scope="module")
def root(image, archive, tmp_path_factory):
    """What a container of the image sees as its root."""
    folder = tmp_path_factory.mktemp("root")
    (layer,) = archive.manifest["layers"]
    with tarfile.open(image) as tar:
        packed = archive.read(tar, archive.blob(layer))
    subprocess.run(["tar", "-xzC", folder], input=packed, check=True)  # tarfile's words for it came with 3.11.4
    return folder


PINNED = [line.split("==") for line in (ROOT / "constraints.txt").read_text().split()]


def spelled(name):
    return re.sub("[-_.]+", "_", name).lower()


def installed(root):
    """The version of each package of Python."""
    found = [path.name.removesuffix(".dist-info").split("-") for path in root.rglob("*.dist-info")]
    return {spelled(name): version for name, version in found}


def run(root, *argv):
    """In the image's root, which is read-only."""
    shell = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec chroot "$0" "$@"'
    command = ["unshare", "--mount", "sh", "-c", shell, root, *argv]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_it_is_small(image, root):
    unpacked = sum(path.lstat().st_size for path in root.rglob("*"))
    assert unpacked < 200 * MB
    assert image.stat().st_size < 70 * MB


def test_it_has_no_shell_no_compiler_no_installer_and_no_more_rights_than_its_user(root):
    programs = {
        path.name
        for folder in ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin")
        for path in (root / folder).glob("*")
    }
    assert programs == {"python3", "python3.11", "tini", "dpgateway"}
    assert [str(path) for name in ("pip", "setuptools", "wheel") for path in root.rglob(f"{name}*/__init__.py")] == []
    others = [path for path in root.rglob("*") if not path.is_symlink()]
    assert [path for path in others if path.stat().st_mode & 0o6000] == []
    assert [path for path in others if path.stat().st_mode & 0o1022 in (0o002, 0o020, 0o022)] == []  # sticky may be


def test_its_list_of_parts_names_all_that_it_is_made_of(image, root):
    listed = json.loads((root / "usr/share/sbom/dpgateway.spdx.json").read_text())
    assert listed == json.loads(image.with_suffix(".spdx.json").read_text())
    purls = [package["externalRefs"][0]["referenceLocator"] for package in listed["packages"]]
    named = [re.match(r"pkg:(\w+)/(?:debian/)?([^@]+)@", purl) for purl in purls]
    parts = {(one[1], spelled(one[2])) for one in named if one}
    licences = {path.parent.resolve().name for path in (root / "usr/share/doc").glob("*/copyright")}
    assert {name for kind, name in parts if kind == "pypi"} == set(installed(root))
    assert {name for kind, name in parts if kind == "deb"} >= {spelled(name) for name in licences} != set()


def test_the_packages_of_pip_are_those_that_everybody_tests(root):
    pinned = {spelled(name): version for name, version in PINNED}
    others = {name for name, version in installed(root).items() if pinned.get(name) != version}
    assert others == {"dpgateway", "dpgateway_chardev", "dpgateway_fpga", "dpgateway_simulated"}


def test_each_driver_that_was_asked_for_is_in_it(root):
    listed = json.loads(run(root, "/usr/local/bin/dpgateway", "drivers", "--output", "json"))
    assert {driver["name"] for driver in listed} == {"chardev", "fpga", "simulated"}


def test_every_module_is_there_as_bytecode_because_nothing_can_be_written(root):
    sources = [path for folder in ("usr/lib", "usr/local/lib") for path in (root / folder).rglob("*.py")]
    plain = [path for path in sources if not list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))]
    assert [path.name for path in plain if path.name != "sitecustomize.py"] == []


CONFIG = """
kubelet: {device_plugins_dir: /run/dp}
state_dir: /run/state
resources: [{name: example.com/thing, driver: simulated}]
"""
CONTAINER = """
mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount -t tmpfs run "$0/run"
mkdir "$0/run/dp" && echo "$CONFIG" >"$0/run/config.yaml"
exec chroot "$0" "$@"
"""


def test_tini_is_its_first_process_and_passes_the_end_on(root, archive):
    words = [*archive.config["Entrypoint"], *archive.config["Cmd"], "--config=/run/config.yaml"]
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", CONTAINER, root, *words]
    environment = {"CONFIG": CONFIG, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    with subprocess.Popen(unshare, stderr=subprocess.PIPE, text=True, env=environment) as container:
        try:
            assert container.stderr is not None
            assert any('"message": "serving' in line for line in container.stderr)
            (first,) = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
            assert Path(f"/proc/{first}/comm").read_text() == "tini\n"
            os.kill(int(first), signal.SIGTERM)
            assert container.wait(20) == 0
        finally:
            container.kill()


def test_its_name_is_the_charts_default_one(archive):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = (ROOT / "deploy/helm/dpgateway/Chart.yaml").read_text()
    (repository,) = re.findall(
        r"^  repository: (\S+)", (ROOT / "deploy/helm/dpgateway/values.yaml").read_text(), re.MULTILINE
    )
    assert archive.name == f"{repository}:{version}"
    assert re.findall(r"^(?:version|appVersion): (\S+)", chart, re.MULTILINE) == [version, version]


def test_the_dockerfile_ends_as_the_archive_does(archive):
    end = DOCKERFILE.rpartition("\nFROM scratch\n")[2]
    said = {line.partition(" ")[0]: line.partition(" ")[2] for line in end.splitlines()}
    assert json.loads(said["ENTRYPOINT"]) == archive.config["Entrypoint"]
    assert json.loads(said["CMD"]) == archive.config["Cmd"]
    assert said["ENV"].split() == archive.config["Env"]
    assert (said["USER"], said["STOPSIGNAL"]) == (archive.config["User"], archive.config["StopSignal"])
