"""Every version has its row, and the rows are of fields that exist."""

import dataclasses
import re
from pathlib import Path

import pytest

from dpgateway_simulator import UnknownVersionError, behaviour, versions
from dpgateway_simulator.kubelet import releases
from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.wire.dialects import DIALECTS

SOURCES = Path(releases.__file__).parents[1]
FIELDS = {field.name for field in dataclasses.fields(Behaviour)} - {"version", "minor"}


def test_every_minor_version_is_known() -> None:
    assert versions()[0] == "1.8"
    assert versions()[-1] == "1.37"
    assert [behaviour(one).minor for one in versions()] == list(range(8, 38))


def test_rows_change_known_fields() -> None:
    assert all(changes.keys() <= FIELDS for changes in releases.CHANGES.values())
    assert list(releases.CHANGES) == sorted(releases.CHANGES)


def test_modules_compare_no_releases() -> None:
    """Else something that differs by release stands elsewhere, or a column means nothing."""
    modules = [path for path in SOURCES.rglob("*.py") if path.name not in {"releases.py", "behaviour.py"}]
    asked = {name for path in modules for name in re.findall(r"(?<!mis)(?:behaviour|does)\.(\w+)", path.read_text())}
    assert asked - FIELDS == {"version"}
    assert FIELDS - asked == set()


@pytest.mark.parametrize("text", ["1.24", "v1.24", "1.24.17", " 1.24 "])
def test_ways_to_write_a_version(text: str) -> None:
    assert behaviour(text).minor == 24


@pytest.mark.parametrize("text", ["", "1", "1.7", "1.38", "2.0", "1.24-rc", "latest"])
def test_versions_that_do_not_exist(text: str) -> None:
    with pytest.raises(UnknownVersionError, match=r"expected 1\.8 to 1\.37"):
        behaviour(text)


@pytest.mark.parametrize(
    ("version", "api", "package"),
    [("1.8", "0.1", "deviceplugin"), ("1.9", "v1alpha2", "deviceplugin"), ("1.10", "v1beta1", "v1beta1")],
)
def test_the_three_apis(version: str, api: str, package: str) -> None:
    assert (behaviour(version).api, DIALECTS[behaviour(version).api].package) == (api, package)


def test_patches_keep_build_values() -> None:
    assert {patch for (_, patch), changes in releases.CHANGES.items() if "user_agent" in changes} == {0}


def test_backports_follow_the_patch() -> None:
    needs = {one: behaviour(one).needs_healthy for one in ("1.25.9", "1.25.10", "1.26.4", "1.26.5", "1.27.1", "1.28.0")}
    assert needs == {
        "1.25.9": False, "1.25.10": True, "1.26.4": False, "1.26.5": True, "1.27.1": False, "1.28.0": True,
    }  # fmt: skip
    spares = [f"1.{minor}.{patch}" for minor, patch in ((25, 14), (26, 11), (27, 8))]
    assert all(behaviour(one).spares_running for one in (*spares, "1.28.0"))
    assert not any(behaviour(one).spares_running for one in ("1.25.13", "1.26.0", "1.26.10", "1.27.0", "1.27.7"))
