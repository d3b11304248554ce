"""An OCI image archive of nothing but busybox, so that no image is ever pulled."""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

IMAGE = "dpgateway.invalid/busybox:1"
BUSYBOX = Path("/bin/busybox")  # Debian's busybox-static
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MEDIA = "application/vnd.oci.image"


def write_image(path: Path) -> None:
    layer = _layer()
    config = {
        "architecture": ARCHITECTURES.get(os.uname().machine, os.uname().machine),
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"]},  # a sandbox runs this
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    blobs = [layer, json.dumps(config).encode()]
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": _descriptor(blobs[1], "config.v1+json"),
        "layers": [_descriptor(layer, "layer.v1.tar")],
    }
    blobs.append(json.dumps(manifest).encode())
    entry = {**_descriptor(blobs[2], "manifest.v1+json"), "annotations": {"io.containerd.image.name": IMAGE}}
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())
        for blob in blobs:
            _add(tar, "blobs/" + _digest(blob).replace(":", "/"), blob)


def _layer() -> bytes:
    buffer = io.BytesIO()
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("bin", "dev", "etc", "proc", "sys", "tmp", "var"):
            _add(tar, name, type=tarfile.DIRTYPE, mode=0o755)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
        _add(tar, "bin/busybox", BUSYBOX.read_bytes(), mode=0o755)
        for name in applets:
            if name != "busybox":
                _add(tar, f"bin/{name}", type=tarfile.SYMTYPE, linkname="busybox")
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes = b"", **fields: Any) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    tar.addfile(info, io.BytesIO(data))


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _descriptor(data: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": f"{MEDIA}.{kind}", "size": len(data), "digest": _digest(data)}
