"""What the page has for its reader to write is what the chart and the gateway take, and what it quotes is said."""

import json
import re
import subprocess

import pytest
from ruamel.yaml import YAML

from tests.docs.pages import DOCS, Page
from tests.support.gateway import COMMAND

PAGE = Page("how-to/move-to-dra.md")
ROOT = DOCS.parent
(VALUES,) = YAML(typ="safe", pure=True).load_all(PAGE.files["values.yaml"])
COMMON = VALUES["config"] | {"dra": {"driver": VALUES["dra"]["driver"]}}
MOVED = VALUES["profiles"]["moved"]["config"]


@pytest.mark.parametrize("config", [COMMON, COMMON | MOVED], ids=["stays", "moves"])
def test_the_gateway_takes_each_configuration(config, tmp_path):
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    words = [*COMMAND, "check", "--all-nodes", "--config", tmp_path / "config.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_values_are_the_charts():
    (known,) = YAML(typ="safe", pure=True).load_all(ROOT / "deploy/helm/dpgateway/values.yaml")
    assert set(VALUES) <= set(known)
    assert set(VALUES["dra"]) <= set(known["dra"])


def test_each_text_that_it_quotes_is_the_gateways():
    """Or Kubernetes'."""
    section = PAGE.text.partition("## What can go wrong")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)
    quoted = [text for row in rows for text in re.findall(r"\*(.+?)\*", row)]
    source = "\n".join(path.read_text() for path in (ROOT / "src/dpgateway").rglob("*.py"))
    source = re.sub(r'"\n\s*f?"', "", source)
    parts = {part.strip() for text in quoted for part in text.split("...") if part.strip()}
    kubernetes = {"UnexpectedAdmissionError", "cannot allocate all claims", "ContainerCreating"}
    kubernetes.add("assignment to entry in nil map")
    assert len(parts) > 10
    assert [part for part in parts - kubernetes if part not in source] == []


def test_what_is_lost_is_what_the_preflight_says():
    found = set(re.findall(r"`(dra-[a-z]+)` \|$", PAGE.text, re.MULTILINE))
    source = (ROOT / "src/dpgateway/preflight/front.py").read_text()
    losses = re.findall(r'Finding\("(?:change|loss)", "(dra-[a-z]+)"', source)
    assert found == set(losses) - {"dra-held"}
