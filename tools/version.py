"""The version, which pyproject.toml says, and the places that repeat it.

python -m tools.version           prints it; ends with 1 if a place, or the head of CHANGELOG.md, says another one
python -m tools.version X.Y.Z     writes it into pyproject.toml and the places
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.packages import ROOT

SOURCE = "pyproject.toml"
DECLARED = r'^version = "(.*)"$'
IMAGE = r"localhost/dpgateway:(\S+)"
PLACES: Mapping[str, str] = {
    SOURCE: DECLARED,
    "backends/chardev/pyproject.toml": DECLARED,
    "backends/fpga/pyproject.toml": DECLARED,
    "backends/simulated/pyproject.toml": DECLARED,
    "src/dpgateway/status/values.py": r'^VERSION = "(.*)"$',
    "deploy/helm/dpgateway/Chart.yaml": r"^(?:version|appVersion): (.*)$",
    "deploy/kubernetes/dpgateway.yaml": rf'{IMAGE}|app\.kubernetes\.io/version: "(.*)"',
    "deploy/image/Dockerfile": IMAGE,
    "docs/how-to/install-cluster.md": r"localhost/dpgateway:([\d.]+)",
    "README.md": r"^gateway (\S+) of node|  simulated (\S+)  ",
}
"""Files, and expressions whose groups are the version."""
VERSION = re.compile(r"\d+\.\d+\.\d+")
"""What pip, Helm and a tag of an image all understand."""


class VersionError(RuntimeError):
    """The text names the files that don't agree."""


def release(root: Path = ROOT) -> tuple[str, str]:
    """The version, and its part of CHANGELOG.md, without the heading. Raises VersionError."""
    found = {name: _found(root, name) for name in PLACES}
    (version,) = found[SOURCE]
    wrong = [f"{name} has {sorted(said) or 'none'}" for name, said in found.items() if said != {version}]
    newest, _, changes = (root / "CHANGELOG.md").read_text().partition("\n## ")[2].partition("\n")
    if re.split(r"[, ]", newest)[0] != version:
        wrong.append(f"CHANGELOG.md begins with {newest!r}")
    if wrong:
        raise VersionError(f"expected the version {version} of {SOURCE}: {'; '.join(wrong)}")
    return version, changes.partition("\n## ")[0].strip() + "\n"


def write(version: str, root: Path = ROOT) -> None:
    """Raises VersionError."""
    if not VERSION.fullmatch(version):
        raise VersionError(f"found the version {version!r}, expected three numbers: 1.2.3")
    for name, expression in PLACES.items():
        path = root / name
        path.write_text(
            re.sub(expression, lambda found: _replaced(found, version), path.read_text(), flags=re.MULTILINE)
        )


def _found(root: Path, name: str) -> set[str]:
    matches = re.finditer(PLACES[name], (root / name).read_text(), re.MULTILINE)
    return {str(found[found.lastindex or 0]) for found in matches}


def _replaced(found: re.Match[str], version: str) -> str:
    start, end = (place - found.start() for place in found.span(found.lastindex or 0))
    return found[0][:start] + version + found[0][end:]


def main() -> int:
    try:
        if sys.argv[1:]:
            write(sys.argv[1])
        print(release()[0])
    except VersionError as error:
        return print(error, file=sys.stderr) or 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
