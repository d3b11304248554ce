"""An OCI image archive (https://github.com/opencontainers/image-spec) of one root file system, in one layer.

`ctr images import`, `podman load` and `skopeo` read it. The archive is reproducible, byte by byte.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

MEDIA = "application/vnd.oci.image"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
CONFIG = {
    "Entrypoint": ["/usr/bin/tini", "--", "/usr/local/bin/dpgateway"],
    "Cmd": ["run"],
    "Env": ["PATH=/usr/local/bin:/usr/bin", "PYTHONUNBUFFERED=1"],
    "User": "0:0",
    "StopSignal": "SIGTERM",
}
"""The image's configuration, as at the end of deploy/image/Dockerfile."""


def write(path: Path, name: str, root: Path, labels: Mapping[str, str]) -> None:
    """Writes the archive. `name`: the image's name after its import, with a tag."""
    with tempfile.TemporaryFile() as layer, tempfile.TemporaryFile() as packed:
        plain = _layer(layer, root)
        with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=6, mtime=EPOCH) as compressed:
            shutil.copyfileobj(layer, compressed)
        architecture = ARCHITECTURES.get(os.uname().machine, os.uname().machine)
        layers = {"type": "layers", "diff_ids": [plain]}
        settings = {"architecture": architecture, "os": "linux", "config": {**CONFIG, "Labels": dict(labels)}}
        config = json.dumps(settings | {"rootfs": layers}).encode()
        size = packed.tell()
        described = [_described("layer.v1.tar+gzip", _digest(packed), size)]
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": f"{MEDIA}.manifest.v1+json",
                "config": _described("config.v1+json", _digest(io.BytesIO(config)), len(config)),
                "layers": described,
            }
        ).encode()
        _pack(path, name, {"config": config, "manifest": manifest}, packed)


def _layer(file: Any, root: Path) -> str:  # noqa: ANN401  a temporary file has no type to name
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            tar.add(path, path.relative_to(root).as_posix(), recursive=False, filter=_plain)
    return _digest(file)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Removes owner and time, which differ between builds."""
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = EPOCH
    return info


def _pack(path: Path, name: str, blobs: Mapping[str, bytes], layer: Any) -> None:  # noqa: ANN401
    manifest = blobs["manifest"]
    entry = _described("manifest.v1+json", _digest(io.BytesIO(manifest)), len(manifest))
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    index = {"schemaVersion": 2, "manifests": [entry | {"annotations": names}]}
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", io.BytesIO(b'{"imageLayoutVersion":"1.0.0"}'))
        _add(tar, "index.json", io.BytesIO(json.dumps(index).encode()))
        for blob in (*map(io.BytesIO, blobs.values()), layer):
            _add(tar, "blobs/" + _digest(blob).replace(":", "/"), blob)


def _add(tar: tarfile.TarFile, name: str, file: BinaryIO) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = file.seek(0, os.SEEK_END), EPOCH
    file.seek(0)
    tar.addfile(info, file)


def _digest(file: Any) -> str:  # noqa: ANN401
    """The file's digest. Rewinds the file before and after."""
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    return f"sha256:{digest}"


def _described(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": f"{MEDIA}.{kind}", "digest": digest, "size": size}
