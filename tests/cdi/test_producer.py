"""An allocation as a spec of the gateway's own says the same as the allocation, and every runtime can read it."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpgateway.cdi import spec
from dpgateway.cdi.expansion import HostNode, Resolved, expand
from dpgateway.cdi.producer import OWN, Granted, Record, kind, recorded, text_of
from dpgateway.config.problems import Wrong
from dpgateway.config.spelling import check_resource_name
from dpgateway.errors import CdiError
from dpgateway.model import Allocation, DeviceNode, Mount, place

NOTHING = Granted("/run/cdi", "/dp", "example.com/thing", ("a",), {}, (), ())
NULL = HostNode("c", 1, 3, 0o660, 0, 0)


def absent(path):
    return path, None


def read(what, real=absent):
    return spec.read(text_of(what.name, what, real), what.file)


TEXTS = st.text(max_size=4).filter(lambda text: "\0" not in text and text.isprintable())
ENV = st.dictionaries(TEXTS.filter(lambda name: name and "=" not in name), TEXTS | st.just("=a="), max_size=3)
PATHS = st.sampled_from(["/dev/null", "/a", "/a/b", "/dev/with space", "/é"])
NODES = st.builds(DeviceNode, PATHS, PATHS, st.sampled_from(["r", "rw", "rwm", "m", "mr"]))
MOUNTS = st.builds(Mount, PATHS, PATHS, st.booleans())
PLACES = st.lists(NODES | MOUNTS, max_size=4, unique_by=lambda one: place(str(one.container_path)))
IDS = st.lists(TEXTS.filter(bool), min_size=1, max_size=3, unique=True)


@settings(max_examples=30)
@given(ENV, PLACES, IDS, st.sampled_from([None, NULL]))
def test_an_expanded_spec_is_what_was_granted(env, places, ids, found):
    nodes = tuple(one for one in places if isinstance(one, DeviceNode))
    mounts = tuple(one for one in places if isinstance(one, Mount))
    what = replace(NOTHING, ids=tuple(ids), env=env, device_nodes=nodes, mounts=mounts)
    written = read(what, lambda path: (path, found))
    (device,) = written.devices
    assert f"{written.kind}={device.name}" == what.name
    named = Allocation(annotations={"n": "1"}, cdi_devices=(what.name,))
    one = Resolved(what.name, what.file, written.containerEdits, device.containerEdits)
    assert expand(named, [one], lambda path: found) == Allocation(env, nodes, mounts, {"n": "1"})
    assert recorded(what.to_json(), what.file) == Record(what, what)


@pytest.mark.parametrize(
    ("version", "more"),
    [
        ("0.3.0", {"env": {"A": "1"}}),
        ("0.3.0", {"device_nodes": (DeviceNode("/dev/null"),), "mounts": (Mount("/a", "/b"),)}),
        ("0.5.0", {"device_nodes": (DeviceNode("/dev/null", "/dev/x"),)}),
    ],
)
def test_a_spec_has_the_oldest_sufficient_version(version, more):
    assert read(replace(NOTHING, **more)).cdiVersion == version


def test_links_are_followed_and_modes_are_set():
    what = replace(NOTHING, device_nodes=(DeviceNode("/dev/by-id/x", "/dev/x", "r"),))
    (device,) = read(what, lambda path: ("/dev/null", NULL)).devices
    assert device.containerEdits.deviceNodes == (spec.SpecNode("/dev/x", "/dev/null", fileMode=0o660, permissions="r"),)


def test_a_file_that_is_no_device_node_is_refused():
    what = replace(NOTHING, device_nodes=(DeviceNode("/dev/bus"),))
    with pytest.raises(CdiError, match="/dev/bus is no device node on this host, so a CDI spec can't have it"):
        text_of(what.name, what, lambda path: (path, replace(NULL, type="")))


@given(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,9}[a-z0-9])?/[A-Za-z0-9]([\w.-]{0,9}[A-Za-z0-9])?", fullmatch=True))
@example("3com.example/3d.x_y")
@settings(max_examples=20)
def test_every_runtime_takes_a_resources_kind(resource):
    try:
        check_resource_name(resource)
    except Wrong:
        return
    written = read(replace(NOTHING, resource=resource, env={"A": "1"}))
    assert (written.kind, written.cdiVersion) == (kind(resource), "0.3.0")


def test_whatever_else_is_given_has_another_name():
    changes: list[dict[str, Any]] = [
        {"directory": "/x"},
        {"device_plugins_dir": "/x"},
        {"resource": "example.com/thing.x"},
        {"resource": "example.com/thing-x"},
        {"ids": ("a", "b")},
        {"ids": ("a,b",)},
        {"env": {"A": "1"}},
        {"env": {"A": "1 B=2"}},
        {"env": {"A": "1", "B": "2"}},
        {"device_nodes": (DeviceNode("/a", "/b"),)},
        {"mounts": (Mount("/a", "/b", read_only=False),)},
    ]
    every = [NOTHING, *(replace(NOTHING, **change) for change in changes)]
    assert len({one.name for one in every}) == len({one.file for one in every}) == len(every)
    assert all(OWN.fullmatch(one.file) for one in every)
    there, back = {"A": "1", "B": "2"}, {"B": "2", "A": "1"}
    assert replace(NOTHING, env=there).name == replace(NOTHING, env=back).name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        NOTHING.to_json().replace('"version": 1', '"version": 2'),
        NOTHING.to_json().replace("/run/cdi", "/etc"),
        NOTHING.to_json().replace('["a"]', "[1]"),
        json.dumps({"version": 1}),
    ],
)
def test_what_no_gateway_wrote_is_refused(text):
    with pytest.raises(ValueError, match=re.compile(".")):
        recorded(text, NOTHING.file)
