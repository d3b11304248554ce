"""An OCI image archive (https://github.com/opencontainers/image-spec): a root file system for each architecture.

Each is one layer.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

MEDIA = "application/vnd.oci.image"
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
CONFIG = {
    "Entrypoint": ["/usr/bin/tini", "--", "/usr/local/bin/dpgateway"],
    "Cmd": ["run"],
    "Env": ["PATH=/usr/local/bin:/usr/bin", "PYTHONUNBUFFERED=1"],
    "User": "0:0",
    "StopSignal": "SIGTERM",
}
"""The image's configuration, as at the end of deploy/image/Dockerfile."""


def write(path: Path, name: str, roots: Mapping[str, Path], labels: Mapping[str, str]) -> Mapping[str, str]:
    """Writes the archive; returns the digests by which a registry has the image, and its part for each platform.

    `name`: the image's name after its import, with a tag. `roots`: by architecture.
    """
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", io.BytesIO(b'{"imageLayoutVersion":"1.0.0"}'))
        parts = [_image(tar, architecture, root, labels) for architecture, root in sorted(roots.items())]
        # The name belongs to the list of all architectures, from which an engine takes that of its machine.
        image = _blob(tar, "index.v1+json", _index(parts))
        names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
        _add(tar, "index.json", _index([image | {"annotations": names}]))
    platforms = {f"linux/{part['platform']['architecture']}": part["digest"] for part in parts}
    return {name: image["digest"], **platforms}


def _image(tar: tarfile.TarFile, architecture: str, root: Path, labels: Mapping[str, str]) -> dict[str, Any]:
    """Adds the image of one architecture; returns its descriptor."""
    with tempfile.TemporaryFile() as layer, tempfile.TemporaryFile() as packed:
        plain = _layer(layer, root)
        with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=6, mtime=EPOCH) as compressed:
            shutil.copyfileobj(layer, compressed)
        layers = [_blob(tar, "layer.v1.tar+gzip", packed)]
    platform = {"architecture": architecture, "os": "linux"}
    settings = {"config": {**CONFIG, "Labels": dict(labels)}, "rootfs": {"type": "layers", "diff_ids": [plain]}}
    config = _blob(tar, "config.v1+json", _json(platform | settings))
    kind = {"schemaVersion": 2, "mediaType": f"{MEDIA}.manifest.v1+json"}
    manifest = _blob(tar, "manifest.v1+json", _json(kind | {"config": config, "layers": layers}))
    return manifest | {"platform": platform}


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


def _json(document: Mapping[str, Any]) -> BinaryIO:
    return io.BytesIO(json.dumps(document).encode())


def _index(manifests: Sequence[Mapping[str, Any]]) -> BinaryIO:
    return _json({"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": manifests})


def _blob(tar: tarfile.TarFile, kind: str, file: Any) -> dict[str, Any]:  # noqa: ANN401
    """Adds the file under its digest; returns its descriptor."""
    digest, size = _digest(file), file.seek(0, os.SEEK_END)
    _add(tar, "blobs/" + digest.replace(":", "/"), file)
    return {"mediaType": f"{MEDIA}.{kind}", "digest": digest, "size": size}


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
