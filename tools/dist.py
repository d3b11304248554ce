"""Makes the files of a release: python -m tools.dist [FOLDER] writes them into an empty folder, `dist` by default.

These are wheels and source archives of all four packages, the image with an SBOM for each architecture, the chart, the
release notes, and SHA256SUMS, which the release's maker signs.
"""

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tools.image.rootfs import MACHINES
from tools.packages import OWN, ROOT, build
from tools.version import release

CHART = ROOT / "deploy" / "helm" / "dpgateway"
SUMS = "SHA256SUMS"


def make(folder: Path) -> None:
    version, changes = release()
    folder.mkdir(parents=True, exist_ok=True)
    if found := sorted(path.name for path in folder.iterdir()):
        sys.exit(
            f"{folder}: found {', '.join(found)}, expected an empty folder, because SHA256SUMS lists all that is there"
        )
    build(OWN, folder)
    (folder / f"dpgateway-release-notes-{version}.md").write_text(f"# dpgateway {version}\n\n{changes}")
    package_chart(folder / f"dpgateway-chart-{version}.tgz")
    drivers = [f"--driver={project.name}" for project in OWN[1:]]
    image = folder / f"dpgateway-image-{version}.tar"
    platforms = [f"--platform=linux/{architecture}" for architecture in MACHINES]
    subprocess.run([sys.executable, "-m", "tools.image", *drivers, *platforms, str(image)], cwd=ROOT, check=True)
    (folder / SUMS).write_text("".join(sums(folder)))


def package_chart(path: Path) -> None:
    """Packs as `helm package` does: files below the chart's name, with links followed."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for file in sorted(one for one in CHART.rglob("*") if one.is_file()):
            data = file.read_bytes()
            info = tarfile.TarInfo(f"{CHART.name}/{file.relative_to(CHART)}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def sums(folder: Path) -> Iterator[str]:
    """Lines for `sha256sum --check`."""
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.name != SUMS:
            with file.open("rb") as stream:
                yield f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {file.name}\n"


if __name__ == "__main__":
    make(Path(*sys.argv[1:2] or ["dist"]))
