"""Which metrics an expression of PromQL names, and which of their labels it asks for."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"

_GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_RANGE = re.compile(r"\[[^]]*]")
_NAME = re.compile(r"(?<![\w.$])([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?\s*(\()?")
_WORDS = {"and", "or", "unless", "offset", "bool"}


def metrics(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric with the labels that its selector names."""
    for name, selector, call in _NAME.findall(_RANGE.sub("", _GROUPING.sub("", expression))):
        if not call and name not in _WORDS:
            yield name, set(re.findall(r'(\w+)\s*[=!]~?"', selector))


def read(name: str) -> Any:
    """A file of deploy/monitoring/, YAML or JSON."""
    return YAML(typ="safe").load(MONITORING / name)


def alerts() -> list[dict[str, Any]]:
    return [rule for group in read("alerts.yaml")["groups"] for rule in group["rules"]]


def dashboard() -> Any:
    return json.loads((MONITORING / "dashboard.json").read_text())


def shown() -> list[str]:
    """The expressions of the dashboard, as Grafana sends them."""
    expressions = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    return [expression.replace("$__rate_interval", "1m") for expression in expressions]
