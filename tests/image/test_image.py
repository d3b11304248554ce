"""The image, as an archive, for each architecture: what is in it, how large it is, and that it runs as it is."""

import json
import os
import re
import signal
import subprocess
import tomllib
from pathlib import Path

from tests.image.container import ARCHITECTURES, PATIENCE, Container
from tools.image.rootfs import SITE, install
from tools.version import release

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "deploy/image/Dockerfile").read_text()
MB = 1_000_000


PINNED = [line.split("==") for line in (ROOT / "constraints.txt").read_text().split()]


def spelled(name):
    return re.sub("[-_.]+", "_", name).lower()


def installed(root):
    """The version of each package of Python."""
    found = [path.name.removesuffix(".dist-info").split("-") for path in root.rglob("*.dist-info")]
    return {spelled(name): version for name, version in found}


def test_it_is_small(archive, container):
    unpacked = sum(path.lstat().st_size for path in container.root.rglob("*"))
    assert unpacked < 200 * MB
    assert archive.path.stat().st_size < 70 * MB * len(ARCHITECTURES)


def test_it_has_no_shell_no_compiler_no_installer_and_no_more_rights_than_its_user(container):
    root = container.root
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


def test_its_list_of_parts_names_all_that_it_is_made_of(archive, container):
    root = container.root
    listed = json.loads((root / "usr/share/sbom/dpgateway.spdx.json").read_text())
    assert listed == archive.parts(container.architecture)
    purls = [package["externalRefs"][0]["referenceLocator"] for package in listed["packages"]]
    assert {purl.partition("?arch=")[2] for purl in purls} == {container.architecture, ""}
    named = [re.match(r"pkg:(\w+)/(?:debian/)?([^@]+)@", purl) for purl in purls]
    parts = {(one[1], spelled(one[2])) for one in named if one}
    licences = {path.parent.resolve().name for path in (root / "usr/share/doc").glob("*/copyright")}
    assert {name for kind, name in parts if kind == "pypi"} == set(installed(root))
    assert {name for kind, name in parts if kind == "deb"} >= {spelled(name) for name in licences} != set()


def test_the_packages_of_pip_are_those_that_everybody_tests(container):
    pinned = {spelled(name): version for name, version in PINNED}
    others = {name for name, version in installed(container.root).items() if pinned.get(name) != version}
    assert others == {"dpgateway", "dpgateway_chardev", "dpgateway_fpga", "dpgateway_simulated"}


def test_it_has_no_trace_of_the_folder_where_it_was_made(container):
    assert list(container.root.rglob("direct_url.json")) == []
    records = {path: path.read_text() for path in (container.root / SITE).glob("*.dist-info/RECORD")}
    assert [str(path) for path, text in records.items() if "direct_url" in text] == []
    assert len(records) == len(installed(container.root))


def test_each_driver_that_was_asked_for_is_in_it(container):
    listed = json.loads(container.run("/usr/local/bin/dpgateway", "drivers", "--output", "json"))
    assert {driver["name"] for driver in listed} == {"chardev", "fpga", "simulated"}


def test_every_module_is_there_as_bytecode_because_nothing_can_be_written(container):
    sources = [path for folder in ("usr/lib", "usr/local/lib") for path in (container.root / folder).rglob("*.py")]
    plain = [path for path in sources if not list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))]
    assert [path.name for path in plain if path.name != "sitecustomize.py"] == []


def test_tini_is_its_first_process_and_passes_the_end_on(archive, container):
    config = archive.configs[container.architecture]["config"]
    with container.start(*config["Entrypoint"], *config["Cmd"], "--config=/run/config.yaml") as process:
        try:
            assert any('"message": "serving' in line for line in process.stderr)
            (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            assert Path(f"/proc/{first}/comm").read_text() == "tini\n"
            os.kill(int(first), signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def test_it_checks_a_configuration(container):
    said = container.run("/usr/local/bin/dpgateway", "check", "--config=/run/config.yaml")
    assert "/run/config.yaml is valid" in said


def test_the_demonstration_goes_well_in_it(container, tmp_path):
    """With the packages of the simulator, which the image hasn't got, in a copy of it."""
    subprocess.run(["cp", "-al", container.root, tmp_path / "root"], check=True)
    simulator = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["simulator"]
    install(tmp_path / "root" / SITE, simulator, container.architecture)
    said = Container(container.architecture, tmp_path / "root").run("/usr/local/bin/dpgateway", "demo")
    assert "All as expected" in said


def test_a_release_is_complete(archive):
    version, _ = release()
    names = ("dpgateway", "dpgateway_chardev", "dpgateway_fpga", "dpgateway_simulated")
    packages = {f"{name}-{version}{end}" for name in names for end in (".tar.gz", "-py3-none-any.whl")}
    digests = archive.path.with_suffix(".digests")
    assert [line.split() for line in digests.read_text().splitlines()] == [[v, k] for k, v in archive.digests.items()]
    others = {
        digests.name,
        f"dpgateway-chart-{version}.tgz",
        f"dpgateway-release-notes-{version}.md",
        archive.path.name,
    }
    parts = {f"dpgateway-image-{version}.{architecture}.spdx.json" for architecture in ARCHITECTURES}
    listed = (archive.path.parent / "SHA256SUMS").read_text().split()[1::2]
    assert set(listed) == packages | others | parts
    assert {path.name for path in archive.path.parent.iterdir()} == {*listed, "SHA256SUMS"}
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=archive.path.parent, check=True)


def test_its_name_is_the_charts_default_one(archive):
    version, _ = release()
    (repository,) = re.findall(
        r"^  repository: (\S+)", (ROOT / "deploy/helm/dpgateway/values.yaml").read_text(), re.MULTILINE
    )
    assert archive.name == f"{repository}:{version}"


def test_the_dockerfile_ends_as_the_archive_does(archive, container):
    config = archive.configs[container.architecture]
    assert (config["os"], config["architecture"]) == ("linux", container.architecture)
    config = config["config"]
    end = DOCKERFILE.rpartition("\nFROM scratch\n")[2]
    said = {line.partition(" ")[0]: line.partition(" ")[2] for line in end.splitlines()}
    assert json.loads(said["ENTRYPOINT"]) == config["Entrypoint"]
    assert json.loads(said["CMD"]) == config["Cmd"]
    assert said["ENV"].split() == config["Env"]
    assert (said["USER"], said["STOPSIGNAL"]) == (config["User"], config["StopSignal"])
