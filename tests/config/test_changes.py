"""What a new configuration changes, as arithmetic over two of them."""

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dpgateway.config import (
    Changes,
    ClusterSettings,
    Configuration,
    KubeletSettings,
    Place,
    ResourceConfig,
    Shares,
    Timeouts,
    restart_keys,
)
from dpgateway.config.changes import IN_PLACE, changes
from dpgateway.model import Mount
from tests.support.resources import Scripted, configured

OTHER: dict[str, Any] = {
    "driver": "other",
    "options": {"count": 2},
    "nodes": ("node-*",),
    "front": "dra",
    "shares": Shares(2),
    "preference": "packed",
    "cdi": "never",
    "pool": "gpus",
    "keep_lost": timedelta(1),
    "refresh": timedelta(1),
    "env": {"A": "b"},
    "annotations": {"a": "b"},
    "mounts": (Mount("/a", "/b"),),
    "timeouts": Timeouts(list=timedelta(1)),
    "driver_class": Scripted,
}
"""Another value for each key that may differ between two configurations of a resource that works."""
NEVER = {"name", "where", "written", "failure", "load", "driver_version", "chosen"}
WORKING = configured(name="example.com/a")
FAILED = configured(name="example.com/a", failure="it isn't installed", options=None)


def fate(old: ResourceConfig, new: ResourceConfig) -> str:
    found = changes([old], [new])
    (what,) = [field.name for field in fields(found) if field.name != "keys" and getattr(found, field.name)]
    return what


def test_each_resource_has_one_fate():
    a, b, c, d = (configured(name=f"example.com/{name}") for name in "abcd")
    found = changes([a, b, c], [replace(c, options=None), d, a])
    keys = {"example.com/c": ("options",)}
    assert found == Changes(added=(d,), removed=(b,), restarted=(replace(c, options=None),), same=(a,), keys=keys)
    assert str(found) == "added: example.com/d; removed: example.com/b; restarted: example.com/c (options)"


def test_nothing_is_said_of_what_is_the_same():
    assert str(changes([WORKING], [WORKING])) == ""


def test_every_key_is_compared():
    assert OTHER.keys() | NEVER == {field.name for field in fields(ResourceConfig)}


@pytest.mark.parametrize("key", OTHER)
def test_each_key_changes_in_place_or_restarts(key):
    new = replace(WORKING, **{key: OTHER[key]})
    assert fate(WORKING, new) == ("amended" if key in IN_PLACE else "restarted")
    assert changes([WORKING], [new]).keys == {WORKING.name: ("driver" if key == "driver_class" else key,)}


def test_another_place_in_the_file_is_no_difference():
    assert fate(WORKING, replace(WORKING, where=Place("other.yaml", 7))) == "same"


def test_an_unusable_driver_keeps_the_old_one():
    assert fate(WORKING, FAILED) == "unusable"


def test_what_failed_is_restarted_whatever_differs():
    assert fate(FAILED, WORKING) == "restarted"
    assert fate(FAILED, replace(FAILED, nodes=("node-*",))) == "restarted"
    assert fate(FAILED, FAILED) == "same"


def test_unloaded_options_are_compared_as_written():
    unloaded = replace(FAILED, load=lambda: WORKING)
    assert fate(WORKING, unloaded) == fate(unloaded, unloaded) == "same"
    assert changes([WORKING], [unloaded]).same == (WORKING,), "it keeps the driver that it has"
    assert fate(WORKING, replace(unloaded, env={"A": "1"})) == "amended"
    assert fate(WORKING, replace(unloaded, written={"options": {"count": 2}})) == "restarted"
    assert fate(unloaded, WORKING) == "restarted"


def test_incomparable_options_differ():
    @dataclass(frozen=True)
    class Options:
        def __eq__(self, other):
            raise ValueError("no")

        __hash__ = None  # type: ignore[assignment]

    assert fate(replace(WORKING, options=Options()), replace(WORKING, options=Options())) == "restarted"


def test_what_needs_a_new_start_is_named():
    old = Configuration((), KubeletSettings())
    assert restart_keys(old, old) == ()
    new = Configuration((WORKING,), KubeletSettings(apis=("v1beta1",)), Path("/other"))
    assert restart_keys(old, new) == ("kubelet.apis", "state_dir")


def test_the_api_server_stays_the_same_once_it_is_asked():
    one, other = ClusterSettings(server="https://one"), ClusterSettings(server="https://other", events=True)
    idle, asked = (
        Configuration((), KubeletSettings(), cluster=one),
        Configuration((), KubeletSettings(), cluster=replace(one, events=True)),
    )
    assert restart_keys(idle, Configuration((), KubeletSettings(), cluster=other)) == ()
    assert restart_keys(asked, Configuration((), KubeletSettings(), cluster=other)) == ("cluster.server",)
    assert restart_keys(asked, idle) == ()
