"""python -m tools.image [--driver DRIVER]... [--name NAME:TAG] ARCHIVE: the image as an OCI archive.

With --root it makes only the root file system, in that folder, as a stage of deploy/image/Dockerfile does.
"""

import argparse
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

from tools.image import archive, rootfs
from tools.packages import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.image", description="make the container image")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("archive", nargs="?", type=Path, metavar="ARCHIVE", help="where to write the OCI archive")
    where.add_argument("--root", type=Path, help="only make the root file system, in this folder")
    own = parser.add_argument("--driver", action="append", dest="drivers", metavar="DRIVER", default=[])
    own.help = "a name in backends/, a folder with a pyproject.toml, or a requirement; may be repeated"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    parser.add_argument("--name", default=f"localhost/dpgateway:{version}", help="the name under which it is imported")
    given = parser.parse_args()
    try:
        if given.root:
            rootfs.make(given.root, given.drivers)
            return 0
        with tempfile.TemporaryDirectory(prefix="image-") as where_made:
            root = Path(where_made)
            rootfs.make(root, given.drivers)
            given.archive.parent.mkdir(parents=True, exist_ok=True)
            labels = {"org.opencontainers.image.title": "dpgateway", "org.opencontainers.image.version": version}
            archive.write(given.archive, given.name, root, labels)
            shutil.copy(root / rootfs.SBOM, given.archive.with_suffix(".spdx.json"))
    except rootfs.ImageError as error:
        return print(f"no image: {error}", file=sys.stderr) or 1
    print(f"{given.name} in {given.archive}, {given.archive.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
