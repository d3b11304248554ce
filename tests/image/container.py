"""The image's archive, and a container of it for either architecture.

A container is chroot in namespaces of its own. Since Linux 6.7 a user namespace has a binfmt_misc of its own: there
qemu is registered for the other architecture's programs, so the gateway's children run as on a machine of that kind,
and nothing changes outside.
"""

import hashlib
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from tools.image.rootfs import HERE

ARCHITECTURES = ("amd64", "arm64")
QEMU = Path("/usr/bin/qemu-aarch64-static")
MAGIC = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00"
MASK = b"\xff" * 7 + b"\x00" + b"\xff" * 8 + b"\xfe" + b"\xff" * 3
"""A program for 64-bit ARM by its ELF header: little-endian, any OS ABI, executable or shared, e_machine 183."""
REGISTER = """
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s "$PROGRAMS" >/proc/sys/fs/binfmt_misc/register
"""
ENTER = """
mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev"
mount -t tmpfs run "$0/run" && mount -t tmpfs tmp "$0/tmp"
mkdir "$0/run/dp" && printf %s "$CONFIG" >"$0/run/config.yaml"
exec chroot "$0" "$@"
"""
CONFIG = """
kubelet: {device_plugins_dir: /run/dp}
state_dir: /run/state
resources: [{name: example.com/thing, driver: simulated}]
"""
PATIENCE = 400.0
"""Seconds for a program, which may be emulated on a busy machine."""
NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec"]


def missing() -> str | None:
    """What this machine lacks; None: nothing."""
    if HERE != "amd64":
        return f"this machine is {HERE}, expected amd64"
    if not QEMU.exists():
        return f"there is no {QEMU}; install qemu-user-static"
    done = subprocess.run([*NAMESPACES, REGISTER], env=_environment(), capture_output=True, text=True, check=False)
    return f"a user namespace can't register {QEMU}, which needs Linux 6.7: {done.stderr}" if done.returncode else None


def _environment() -> dict[str, str]:
    magic, mask = ("".join(f"\\x{byte:02x}" for byte in one) for one in (MAGIC, MASK))
    programs = f":arm64:M::{magic}:{mask}:{QEMU}:F"  # F: the kernel opens qemu now, not in the container
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PROGRAMS": programs, "CONFIG": CONFIG}


class Archive:
    def __init__(self, path: Path) -> None:
        self.path = path
        with tarfile.open(path) as tar:
            (described,) = json.loads(self._read(tar, "index.json"))["manifests"]
            self.name = described["annotations"]["io.containerd.image.name"]
            parts = {
                one["platform"]["architecture"]: one for one in json.loads(self._blob(tar, described))["manifests"]
            }
            self.digests = {self.name: described["digest"]}
            self.digests |= {f"linux/{architecture}": one["digest"] for architecture, one in parts.items()}
            self._manifests = {architecture: json.loads(self._blob(tar, one)) for architecture, one in parts.items()}
            self.configs = {name: json.loads(self._blob(tar, one["config"])) for name, one in self._manifests.items()}
            """By architecture."""

    def unpack(self, architecture: str, folder: Path) -> None:
        (layer,) = self._manifests[architecture]["layers"]
        with tarfile.open(self.path) as tar:
            packed = self._blob(tar, layer)
        subprocess.run(["tar", "-xzC", folder], input=packed, check=True)  # tarfile's words for it came with 3.11.4

    def parts(self, architecture: str) -> Any:
        """The SBOM beside the archive."""
        return json.loads(self.path.with_suffix(f".{architecture}.spdx.json").read_text())

    def _blob(self, tar: tarfile.TarFile, described: dict[str, Any]) -> bytes:
        content = self._read(tar, "blobs/" + described["digest"].replace(":", "/"))
        assert described["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        return content

    @staticmethod
    def _read(tar: tarfile.TarFile, name: str) -> bytes:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


class Container:
    def __init__(self, architecture: str, root: Path) -> None:
        self.architecture = architecture
        self.root = root

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Starts a program in the image's root, which is read-only; /run/config.yaml is the gateway's configuration."""
        script = ENTER if self.architecture == HERE else REGISTER + ENTER
        command = [*NAMESPACES, script, str(self.root), *argv]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=_environment())

    def run(self, *argv: str) -> str:
        """Returns what the program printed; it must end with 0."""
        with self.start(*argv) as process:
            try:
                said, errors = process.communicate(timeout=PATIENCE)
            finally:
                process.kill()
        assert process.returncode == 0, said + errors
        return said
