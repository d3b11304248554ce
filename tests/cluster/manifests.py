"""deploy/kubernetes, rendered from the chart: python -m tests.cluster.manifests writes it."""

import json
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.cluster.build import KUBE
from tests.cluster.machine.box import run
from tools.dist import CHART

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "kubernetes" / "dpgateway.yaml"
HEAD = (
    "# Rendered from deploy/helm/dpgateway by `make manifests`: change that. Write your resources into the ConfigMap.\n"
)
HELMS_OWN = re.compile(r"^ *(?:helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n|^# Source: .*\n", re.MULTILINE)


def template(*options: object, chart: Path = CHART, values: object = None) -> str:
    """What helm makes of the chart with these values, without a cluster."""
    return _helm("template", chart, json.dumps(values or {}), *options)


def objects(*options: object, **values: object) -> dict[tuple[str, str], Any]:
    """The objects in that, by kind and name."""
    found = YAML(typ="safe", pure=True).load_all(template(*options, values=values))
    return {(one["kind"], one["metadata"]["name"]): one for one in found if one}


def notes(values: object) -> str:
    """What helm would say after an installation, without a cluster."""
    return _helm("install", CHART, json.dumps(values), "--dry-run=client").partition("\nNOTES:\n")[2]


@cache
def _helm(verb: str, chart: Path, values: str, *options: object) -> str:
    with tempfile.TemporaryDirectory(prefix="helm-") as where:
        helm = Path(where) / "helm"
        helm.symlink_to(KUBE.binary())
        words = (verb, "dpgateway", chart, "--namespace=dpgateway", "--values=-", *options)
        return run(helm, *words, input=values)


def rendered() -> str:
    """What helm makes of the chart's own values, without what only helm has a use for."""
    text = template("--skip-tests", "--set=checkConfig=false")
    return HEAD + re.sub(r"\n+---\n", "\n---\n", HELMS_OWN.sub("", text))


if __name__ == "__main__":
    FILE.write_text(rendered())
