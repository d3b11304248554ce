"""The example of a configuration: valid as it is and in full, and true about every key."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from dpgateway import cli
from dpgateway.config.values import (
    ClusterSettings,
    DraSettings,
    KubeletSettings,
    ResourceKeys,
    Shares,
    Timeouts,
    WebSettings,
)
from dpgateway.model import Mount
from tests.support.configurations import complete, load
from tests.support.drivers import find


@pytest.fixture
def example(line):
    result = line("config", "example")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def uncommented(text):
    """With each key that is commented out. A sentence has no colon after its first word."""
    return re.sub(r"^( *)# ((?:  )?[a-z_]+:)", r"\1\2", text, flags=re.MULTILINE)


def read(line, text):
    document = load(line.config(text))
    return complete(document, find(document.drivers))


def test_it_is_printed_as_it_is(example):
    assert example == (Path(cli.__file__).parent / "example.yaml").read_text(encoding="utf-8")


def test_it_passes_the_check(line, example):
    config = line.config(example)
    result = line("check", "--config", config, "--node-name", "n1")
    assert result.exit_code == 0
    assert [text for text in result.stdout.splitlines() if str(config) in text and "warning" in text] == []
    assert result.stdout.endswith(f"{config} is valid on node n1\n")


def test_commented_values_are_the_defaults(line, example):
    full = uncommented(example)
    assert full.count("# ") < example.count("# ") - 10
    short, long = read(line, example), read(line, full)
    assert (short.kubelet, short.web) == (long.kubelet, long.web)
    assert [one.name for one in short.resources] == ["example.com/serial", "example.com/fuse"]
    for one, other in zip(short.resources, long.resources, strict=True):
        assert {key.name: getattr(one, key.name) for key in fields(ResourceKeys)} == {
            key.name: getattr(other, key.name) for key in fields(ResourceKeys)
        }


@pytest.mark.parametrize(
    "kind", [ResourceKeys, Shares, Timeouts, KubeletSettings, WebSettings, Mount, DraSettings, ClusterSettings]
)
def test_it_has_every_key(example, kind):
    for key in fields(kind):
        assert re.search(rf"\b{key.name}: ", example) or re.search(rf"\b{key.name}: *#", example), key.name
