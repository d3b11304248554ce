"""What is made of any devices, as a real API server takes it: slices as a dry run, which leaves nothing behind."""

import itertools
import string

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dpgateway import Device
from dpgateway.dra.slices.changes import Identity, changes, dropped
from dpgateway.dra.slices.layout import contents
from dpgateway.dra.slices.names import pool_name
from dpgateway.dra.slices.offered import Offered, pool

DRIVER = "dra.example.com"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
PCI = "pci 0000:3b:00.0", "pci 0000:3b:00.1"
ROOTS = {name.removeprefix("pci "): "pci0000:3a" for name in PCI}

FEW = settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))

# Any text that a driver may say, and often what looks like a label or has just its length.
some_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=80)
labels = st.text(string.ascii_letters + string.digits + "-_.:/", min_size=1, max_size=70)
texts = some_text | labels
values = some_text | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans()
hardware = st.lists(st.sampled_from(PCI) | st.integers(0, 40).map("hardware {}".format) | texts, max_size=4)


@st.composite
def devices(draw):
    return Device(
        draw(texts.filter(lambda id_: "::" not in id_)),
        numa_nodes=draw(st.lists(st.integers(0, 3), max_size=2)),
        attributes=draw(st.dictionaries(texts, values, max_size=8)),
        hardware=draw(hardware) or None,
    )


@st.composite
def pools(draw):
    """The devices of one or two resources in one pool."""
    names = draw(st.lists(labels.map("example.com/{}".format), min_size=1, max_size=2, unique=True))
    shares = draw(st.sampled_from([1, 1, 4, 1024]))
    offered = []
    for name in names:
        for device in draw(st.lists(devices(), max_size=12, unique_by=lambda one: one.id)):
            key = device.id if len(names) == 1 else f"{name.partition('/')[2]}-{device.id}"
            unhealthy = draw(st.just("") | texts)
            offered.append(Offered(device, name, key, frozenset(device.hardware or (device.id,)), unhealthy, shares))
    return names[0], offered


@pytest.fixture(scope="module")
def server(cluster):
    return cluster.control


def accepted(server, name, offered, node="new"):
    """What the server makes of the pool's slices, each beside what it was sent."""
    identity = Identity(DRIVER, node, "5f0d8bd8-4d5b-4d6c-a1a1-6b4e9c9f8f11", pool_name(node, name))
    todo = changes(contents(pool(offered, DRIVER, ROOTS)), (), identity)
    return [(one, server.api("POST", f"{SLICES}?dryRun=All", one)) for one in todo.create]


@FEW
@given(pools())
def test_no_slice_is_refused_and_no_field_of_it_dropped(server, made):
    for sent, kept in accepted(server, *made):
        assert dropped(sent, kept) == ""
        for before, after in zip(sent["spec"].get("devices", ()), kept["spec"].get("devices", ()), strict=True):
            assert after["attributes"] == before["attributes"]


@FEW
@given(texts, st.from_regex(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?(\.[a-z]{1,40}){0,3}", fullmatch=True))
@example("serial", "ip-10-0-112-134.ap-northeast-1.compute.internal")
def test_each_name_of_a_resource_and_of_a_node_becomes_a_pool(server, name, node):
    one = Offered(Device("a"), f"example.com/{name}", "a", frozenset({"a"}))
    assert len(accepted(server, f"example.com/{name}", [one], node)) == 1


def test_as_many_devices_and_counters_as_a_slice_can_have(server):
    # The widest slices: every device Unhealthy, shared, with counters of two sets and all the attributes there may be.
    shared = [f"hardware {number}" for number in range(64)]
    attributes = {f"a{number}": "x" * 64 for number in range(40)}
    wide = [
        Offered(Device(f"d{n}", attributes=attributes), "example.com/a", f"d{n}", frozenset(shared), "no reason", 4)
        for n in range(130)
    ]
    kept = [one["spec"] for _, one in accepted(server, "example.com/a", wide)]
    assert [len(spec["sharedCounters"]) for spec in kept if "sharedCounters" in spec] == [2]
    names = list(itertools.chain.from_iterable(spec.get("devices", ()) for spec in kept))
    assert [one["name"] for one in names] == [f"d{n}" for n in range(130)]
