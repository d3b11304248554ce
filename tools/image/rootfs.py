"""The image's root file system: Debian's Python with its libraries, and the packages that pip installs.

It contains no shell, package manager or compiler: packages are unpacked, not installed. They come from this machine's
release of Debian and its apt sources. So an image for another architecture is made without running any of its programs.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from tools.image.sbom import Part, document
from tools.packages import OWN, ROOT, build

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Architectures, as Debian and OCI name them, and as Linux and Python's wheels do."""
HERE = {linux: debian for debian, linux in MACHINES.items()}.get(os.uname().machine, os.uname().machine)
"""The architecture of this machine."""
PYTHON = "/usr/bin/python3"
DEBIAN = """
    base-files libbz2-1.0 libc6 libexpat1 libffi8 libgcc-s1 liblzma5 libpython3.11-minimal libpython3.11-stdlib
    libsqlite3-0 libssl3 libstdc++6 libuuid1 python3-minimal python3.11-minimal tini zlib1g
""".split()  # noqa: SIM905  a list of words is easier to read
"""grpcio needs libstdc++6, which needs libgcc-s1; tini is PID 1; the others are Python and its modules' libraries."""
NOT_NEEDED = (
    "boot", "home", "media", "mnt", "opt", "srv", "usr/games", "var/local", "usr/include", "usr/src", "usr/share/man",
    "usr/share/info", "usr/share/lintian", "usr/share/locale", "usr/share/python3", "usr/bin/py3clean",
    "usr/bin/py3compile", "usr/bin/py3versions", "usr/bin/tini-static",
    "usr/lib/x86_64-linux-gnu/gconv", "usr/lib/aarch64-linux-gnu/gconv",
    "usr/lib/python3.11/pydoc_data", "usr/lib/python3.11/idlelib",
)  # fmt: skip
SITE = "usr/local/lib/python3.11/dist-packages"
PROGRAM = """\
#!/usr/bin/python3 -I
import sys

from dpgateway_start import main

sys.exit(main())
"""
FILES = {
    "etc/passwd": "root:x:0:0:root:/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "usr/local/bin/dpgateway": PROGRAM,
}
SBOM = "usr/share/sbom/dpgateway.spdx.json"


class ImageError(RuntimeError):
    """The image can't be made here; the text names the missing part."""


def project(driver: str) -> Path | None:
    """The folder of a driver's package, given its name in backends/ or its path; None: a requirement for pip."""
    for folder in (ROOT / "backends" / driver, Path(driver)):
        if (folder / "pyproject.toml").is_file():
            return folder
    return None


def requirements(drivers: Sequence[str], folder: Path) -> Sequence[str]:
    """What pip installs: wheels of the gateway and of drivers in folders, built in `folder`, and the other drivers.

    A driver is a name in backends/, a folder with a pyproject.toml, or a requirement.
    """
    own = [OWN[0], *(found for driver in drivers if (found := project(driver)))]
    gateway, *others = map(str, build(own, folder))
    # With the client of the API server: one image is for nodes with DRA and for those without.
    return [f"{gateway}[dra]", *others, *(driver for driver in drivers if not project(driver))]


def make(root: Path, packages: Sequence[str], architecture: str) -> None:
    """Fills the folder `root`. `packages`: requirements of pip. Raises ImageError."""
    if not (Path(PYTHON).exists() and shutil.which("apt-get")):
        raise ImageError(
            f"the image is made of Debian's packages on Debian 12, with its own Python: no {PYTHON} or apt-get"
        )
    parts = _unpack(root, architecture)
    for name in NOT_NEEDED:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    _packages(root / SITE, packages, architecture)
    parts += [Part("pypi", one.name, one.version) for one in distributions(path=[str(root / SITE)])]
    for name, text in (FILES | {SBOM: json.dumps(document(parts), indent=1) + "\n"}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "usr/local/bin/dpgateway").chmod(0o755)
    _compile(root)


def download(packages: Sequence[str], where: Path, settings: Sequence[str] = ()) -> None:
    """Downloads with apt's present index. If it is missing or out of date, updates it and retries.

    `settings`: further ones of apt.conf(5), KEY=VALUE.
    """
    options = [word for one in ("APT::Sandbox::User=root", *settings) for word in ("-o", one)]
    command = ["apt-get", "download", "-qq", *options, *packages]
    if subprocess.run(command, cwd=where, check=False, stderr=subprocess.DEVNULL).returncode:
        subprocess.run(["apt-get", "update", "-qq", *options], check=True)
        subprocess.run(command, cwd=where, check=True)


def _foreign(architecture: str, state: Path) -> list[str]:
    """apt's settings for another architecture, with an index of its own in the folder `state`."""
    for name in ("lists/partial", "archives/partial"):
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    folders = {"State": state, "State::status": state / "status", "Cache": state}
    architectures = [f"APT::Architecture={architecture}", f"APT::Architectures::={architecture}"]
    return [*architectures, "Acquire::Languages=none", *(f"Dir::{key}={path}" for key, path in folders.items())]


def _unpack(root: Path, architecture: str) -> list[Part]:
    parts = []
    with tempfile.TemporaryDirectory(prefix="debian-") as where, tempfile.TemporaryDirectory(prefix="apt-") as state:
        Path(where).chmod(0o755)  # apt downloads as the user _apt
        download(DEBIAN, Path(where), [] if architecture == HERE else _foreign(architecture, Path(state)))
        for package in sorted(Path(where).glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
            fields = ["dpkg-deb", "--show", "--showformat=${Package} ${Version} ${Architecture}", str(package)]
            done = subprocess.run(fields, check=True, stdout=subprocess.PIPE, text=True)
            parts.append(Part("deb/debian", *done.stdout.split()))
    return parts


def _packages(site: Path, packages: Sequence[str], architecture: str) -> None:
    install(site, packages, architecture)
    shutil.rmtree(site / "bin", ignore_errors=True)  # scripts of the packages; ours is in /usr/local/bin
    for origin in site.glob("*.dist-info/direct_url.json"):  # the temporary folder, which differs between builds
        record = origin.with_name("RECORD")
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if f"/{origin.name}," not in line))
        origin.unlink()


def install(site: Path, packages: Sequence[str], architecture: str) -> None:
    """Installs packages, requirements of pip, for Debian's Python of an architecture into the folder `site`."""
    pip = [sys.executable, "-m", "pip", "--python", PYTHON, "install", "-q", "--disable-pip-version-check"]
    pip += ["--root-user-action=ignore", "--no-compile", f"--constraint={ROOT / 'constraints.txt'}", f"--target={site}"]
    if architecture != HERE:  # nothing can be compiled: wheels for a glibc up to that of Debian 12
        tags = ("manylinux2014", *(f"manylinux_2_{minor}" for minor in range(17, 37)))
        pip += ["--only-binary=:all:", *(f"--platform={tag}_{MACHINES[architecture]}" for tag in tags)]
    subprocess.run([*pip, *packages], check=True)


def _compile(root: Path) -> None:
    """Compiles each module: the root file system is read-only, and the gateway starts faster from bytecode.

    With unchecked-hash, because the archive sets every file's mtime, which would make the bytecode stale.
    """
    argv = [
        PYTHON,
        "-I",
        "-m",
        "compileall",
        "-q",
        "-j0",
        "-s",
        str(root),
        "-p",
        "/",
        "--invalidation-mode=unchecked-hash",
    ]
    subprocess.run([*argv, str(root / "usr/lib/python3.11"), str(root / SITE)], check=True, env=os.environ)
