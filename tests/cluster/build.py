"""Builds the programs of the cluster: python -m tests.cluster.build [kube]. It needs Go and the Go module proxy.

The binaries are beside those of tests/real_kubelet, whose newest kubelet and containerd are used here too. The control
plane is of the same release as that kubelet, so that Go compiles what they share once.
"""

# ruff: noqa: T201 - it prints, as a program does

import os
import shutil
import sys
from pathlib import Path

from tests.real_kubelet.build import build_all, install_packages, missing_to_build
from tests.real_kubelet.programs import CONTAINERD, KUBELET, VERSION, Program

GO = Path(__file__).resolve().parent / "go"
DEBIAN = {
    "containerd": "containerd",
    "runc": "runc",
    "busybox": "busybox-static",
    "openssl": "openssl",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}


def _kubernetes(name: str, folder: str, version: str) -> Program:
    minor = version.split(".")[1]
    ldflags = f"-X {VERSION}.gitVersion=v{version} -X {VERSION}.gitMajor=1 -X {VERSION}.gitMinor={minor}"
    return Program(name, GO / folder, ldflags=ldflags)


KUBE = _kubernetes("kube", "kube", "1.37.1")
KUBELETS = {
    "1.31": _kubernetes("kubelet-1.31", "kubelet-1.31", "1.31.14"),
    "1.34": _kubernetes("kubelet-1.34", "kubelet-1.34", "1.34.9"),
    "1.36": _kubernetes("kubelet-1.36", "kubelet-1.36", "1.36.4"),
    "1.37": KUBELET,
}
PROGRAMS = (CONTAINERD, KUBE, *KUBELETS.values())


def missing_to_run() -> list[str]:
    if os.geteuid() != 0:
        return ["not root: nodes are namespaces with mounts and networks of their own; run as root"]
    return [f"no {name}: install {package}" for name, package in DEBIAN.items() if not shutil.which(name)]


def main() -> int:
    only = sys.argv[1:]
    todo = [program for program in PROGRAMS if not program.built and (not only or program.name in only)]
    missing = missing_to_build() if todo else []
    if not only:
        install_packages(DEBIAN)
        missing += missing_to_run()
    for text in missing:
        print(f"missing: {text}", file=sys.stderr)
    return 1 if missing else build_all(todo, jobs=2)


if __name__ == "__main__":
    sys.exit(main())
