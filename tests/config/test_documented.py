"""Every key of the configuration is in its reference, with its type and its default."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from ruamel.yaml import YAML

from dpgateway import Mount
from dpgateway.config import (
    ClusterSettings,
    DraSettings,
    KubeletSettings,
    ResourceKeys,
    Shares,
    Timeouts,
    WebSettings,
    format_duration,
)
from dpgateway.config.scalars import name_kind
from dpgateway.config.values import File, RuntimeSettings
from tests.support.configurations import load

REFERENCE = (Path(__file__).parents[2] / "docs/reference/configuration.md").read_text()
ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \| (\*required\*|`[^`]*`) \|", re.MULTILINE)
ROWS = {key: (kind.replace("\\|", "|"), default.strip("`*")) for key, kind, default in ROW.findall(REFERENCE)}

SECTIONS = {
    "": File,
    "<resource>": ResourceKeys,
    "shares.": Shares,
    "timeouts.": Timeouts,
    "kubelet.": KubeletSettings,
    "runtime.": RuntimeSettings,
    "web.": WebSettings,
    "dra.": DraSettings,
    "cluster.": ClusterSettings,
}
WITH_SHORT_FORM = {"shares": ("integer or mapping", "1"), "resources": ("list", "required")}


def keys() -> Iterator[tuple[str, dataclasses.Field[Any], object]]:
    for prefix, kind in [*SECTIONS.items(), ("mounts[].", Mount)]:
        kinds = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            yield prefix.replace("<resource>", "") + field.name, field, kinds[field.name]


def default(field: dataclasses.Field[Any]) -> object:
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if value is dataclasses.MISSING:
        return "required"
    if isinstance(value, timedelta):
        return format_duration(value)
    if dataclasses.is_dataclass(value) or isinstance(value, Mapping):
        return {}
    return [*map(_plain, value)] if isinstance(value, tuple) else _plain(value)


def _plain(value: object) -> object:
    return json.loads(json.dumps(value, default=str))


@pytest.mark.parametrize(("key", "field", "kind"), [pytest.param(*one, id=one[0]) for one in keys()])
def test_a_key_is_documented(key: str, field: dataclasses.Field[Any], kind: object) -> None:
    documented_kind, documented_default = ROWS[key]
    if key in WITH_SHORT_FORM:
        assert (documented_kind, documented_default) == WITH_SHORT_FORM[key]
        return
    assert documented_kind == ("mapping" if key == "options" else name_kind(kind))
    assert YAML(typ="safe").load(documented_default) == default(field)


def test_no_key_is_documented_that_there_is_not() -> None:
    assert set(ROWS) == {key for key, _, _ in keys()}


def test_the_example_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    (example,) = re.findall(r"```yaml\n(defaults:.*?)```", REFERENCE, re.DOTALL)
    file.write_text(example)
    assert len(load(file).entries) == 2
