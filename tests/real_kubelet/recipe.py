"""How the sources of a program become binaries: laid out in a folder where Go can build them, then built.

Kubernetes before 1.15 wasn't made of Go modules: its staging repositories (k8s.io/api and others) can't be fetched at
the version that a release needs, but the module k8s.io/kubernetes has them in it, and its content is checksummed.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.real_kubelet.programs import Program

STAGED = re.compile(r"^\tk8s\.io/([a-z-]+) => \./staging/", re.MULTILINE)
KUBERNETES = re.compile(r"k8s\.io/kubernetes (v\S+)")
GET_RESOURCES = re.compile(r"^func \(cm \*containerManagerImpl\) GetResources.*?^}", re.MULTILINE | re.DOTALL)
GET_RESOURCES_IMPORTS = """package cm

import (
	"github.com/golang/glog"
	"k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

"""


def stage(program: Program, where: Path) -> Path:
    """Copies what `program` is built from into `where`; returns the folder to build in."""
    folder = where / program.folder.name
    shutil.copytree(program.folder, folder)
    for path in program.shared:
        if path.is_dir():
            shutil.copytree(path, where / path.name)
        else:
            shutil.copy(path, folder)
    _stage_kubernetes(folder)
    return folder


def compile_package(program: Program, package: str, folder: Path, output: Path, jobs: int) -> None:
    # -trimpath, so that Go's cache serves the next build too, whatever its folder is called
    command = ["nice", "go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath", f"-p={jobs}"]
    command += [f"-ldflags=-s -w {program.ldflags}".strip(), f"-tags={program.tags}", f"-o={output}", package]
    subprocess.run(command, cwd=folder, env=os.environ | {"GOFLAGS": "", "GOWORK": "off"}, check=True)


def _stage_kubernetes(folder: Path) -> None:
    go_mod = (folder / "go.mod").read_text()
    staged = STAGED.findall(go_mod)
    found = KUBERNETES.search(go_mod)
    if not staged or not found:
        return
    source = _module(f"k8s.io/kubernetes@{found[1]}")
    for name in staged:
        target = folder / "staging" / name
        shutil.copytree(source / "staging" / "src" / "k8s.io" / name, target)
        target.chmod(0o755)  # the module cache is read-only
        (target / "go.mod").write_text(f"module k8s.io/{name}\n")
    if (folder / "cm").is_dir():
        _stage_handler(source / "pkg" / "kubelet" / "cm", folder / "cm")


def _stage_handler(source: Path, target: Path) -> None:
    """The two pieces of 1.8's pkg/kubelet/cm that cm.go is written around."""
    shutil.copyfile(source / "device_plugin_handler.go", target / "device_plugin_handler.go")
    method = GET_RESOURCES.search((source / "container_manager_linux.go").read_text())
    if not method:
        raise RuntimeError(f"{source}/container_manager_linux.go has no method GetResources, as 1.8.15's has")
    (target / "get_resources.go").write_text(GET_RESOURCES_IMPORTS + method[0] + "\n")


def _module(name: str) -> Path:
    """Where the module cache has a module."""
    # asked outside of any module, since the go.mod at hand names folders that are still to come
    done = subprocess.run(["go", "mod", "download", "-json", name], cwd="/", stdout=subprocess.PIPE, check=True)
    return Path(json.loads(done.stdout)["Dir"])
