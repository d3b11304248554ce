"""deploy/kubernetes, rendered from the chart: python -m tests.cluster.manifests writes it."""

import re
import tempfile
from pathlib import Path

from tests.cluster.build import KUBE
from tests.cluster.machine.box import run
from tools.dist import CHART

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "kubernetes" / "dpgateway.yaml"
HEAD = (
    "# Rendered from deploy/helm/dpgateway by `make manifests`: change that. Write your resources into the ConfigMap.\n"
)
HELMS_OWN = re.compile(r"^ *(?:helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n|^# Source: .*\n", re.MULTILINE)


def template(*options: object, chart: Path = CHART) -> str:
    """What helm makes of the chart, without a cluster."""
    return _helm("template", chart, *options)


def notes(*options: object) -> str:
    """What helm would say after an installation, without a cluster."""
    return _helm("install", CHART, "--dry-run=client", *options).partition("\nNOTES:\n")[2]


def _helm(verb: str, chart: Path, *options: object) -> str:
    with tempfile.TemporaryDirectory(prefix="helm-") as where:
        helm = Path(where) / "helm"
        helm.symlink_to(KUBE.binary())
        return run(helm, verb, "dpgateway", chart, "--namespace=dpgateway", *options)


def rendered() -> str:
    """What helm makes of the chart's own values, without what only helm has a use for."""
    text = template("--skip-tests", "--set=checkConfig=false")
    return HEAD + re.sub(r"\n+---\n", "\n---\n", HELMS_OWN.sub("", text))


if __name__ == "__main__":
    FILE.write_text(rendered())
