"""python -m tools.image [--driver DRIVER]... [--platform linux/ARCH]... [--name NAME:TAG] ARCHIVE: an OCI archive.

Beside the archive it writes an SBOM for each architecture, and the digests. With --root it makes only the root file
system, of one platform, in that folder, as a stage of deploy/image/Dockerfile does.
"""

import argparse
import shutil
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.image import archive, rootfs
from tools.packages import ROOT

PLATFORMS = [f"linux/{architecture}" for architecture in rootfs.MACHINES]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.image", description="make the container image")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("archive", nargs="?", type=Path, metavar="ARCHIVE", help="where to write the OCI archive")
    where.add_argument("--root", type=Path, help="only make the root file system, in this folder")
    own = parser.add_argument("--driver", action="append", dest="drivers", metavar="DRIVER", default=[])
    own.help = "a name in backends/, a folder with a pyproject.toml, or a requirement; may be repeated"
    here = f"linux/{rootfs.HERE}"
    other = parser.add_argument("--platform", action="append", dest="platforms", choices=PLATFORMS)
    other.help = f"may be repeated; {here} by default"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    parser.add_argument("--name", default=f"localhost/dpgateway:{version}", help="the name under which it is imported")
    given = parser.parse_args()
    architectures = [platform.removeprefix("linux/") for platform in given.platforms or [here]]
    try:
        with tempfile.TemporaryDirectory(prefix="image-") as where_made, ThreadPoolExecutor() as pool:
            packages = rootfs.requirements(given.drivers, Path(where_made, "wheels"))
            if given.root:
                (architecture,) = architectures
                rootfs.make(given.root, packages, architecture)
                return 0
            roots = {architecture: Path(where_made, architecture) for architecture in architectures}
            for root in roots.values():
                root.mkdir()
            # Most of the time passes in downloads.
            for made in [pool.submit(rootfs.make, root, packages, name) for name, root in roots.items()]:
                made.result()
            given.archive.parent.mkdir(parents=True, exist_ok=True)
            for architecture, root in roots.items():
                shutil.copy(root / rootfs.SBOM, given.archive.with_suffix(f".{architecture}.spdx.json"))
            labels = {"org.opencontainers.image.title": "dpgateway", "org.opencontainers.image.version": version}
            digests = archive.write(given.archive, given.name, roots, labels)
            lines = (f"{digest}  {what}\n" for what, digest in digests.items())
            given.archive.with_suffix(".digests").write_text("".join(lines))
    except rootfs.ImageError as error:
        return print(f"no image: {error}", file=sys.stderr) or 1
    print(
        f"{given.name} for {', '.join(architectures)} in {given.archive}, {given.archive.stat().st_size / 1e6:.0f} MB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
