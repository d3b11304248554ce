"""All four formats are read alike; anything else is an error, never an empty answer."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway.errors import KubeletError
from dpgateway.node.checkpoint import answers, layouts, parse
from dpgateway.node.holders import Container
from dpgateway.node.versions import Layout

THING, OTHER = "example.com/thing", "example.com/other"


def notes(raw):
    return parse(raw).notes


def entry(resource, container="c", **ids):
    return {"PodUID": "1a", "ContainerName": container, "ResourceName": resource, **ids}


V1_8 = {
    "Entries": [
        entry(THING, DeviceID="a"),
        entry(THING, container="d", DeviceID="b"),
        entry(THING, DeviceID="a::1"),
        entry(OTHER, DeviceID="a"),
    ]
}
LISTS = {
    "PodDeviceEntries": [
        entry(THING, DeviceIDs=["a", "a::1"], AllocResp="CgA="),
        entry(THING, container="d", DeviceIDs=["b"], AllocResp=None),
        entry(OTHER, DeviceIDs=["a"], AllocResp=""),
    ],
    "RegisteredDevices": {THING: ["a", "a::1", "b", "c"], OTHER: None},
}
NODES = {
    "PodDeviceEntries": [
        entry(THING, DeviceIDs={"0": ["a"], "1": ["a::1"]}, AllocResp="CgA="),
        entry(THING, container="d", DeviceIDs={"-1": ["b"], "0": None}, AllocResp=None),
        entry(OTHER, DeviceIDs={"0": ["a"]}, AllocResp=""),
    ],
    "RegisteredDevices": {THING: ["a", "a::1", "b", "c"], OTHER: None},
}
FORMATS = {
    "1.8": V1_8,
    "1.9-1.10": LISTS,
    "1.11-1.19": {"Data": LISTS, "Checksum": 1},
    "1.20-1.37": {"Data": NODES, "Checksum": 1},
}
each_format = pytest.mark.parametrize("document", FORMATS.values(), ids=FORMATS)


@each_format
def test_what_all_containers_of_all_pods_hold(document):
    found = notes(json.dumps(document).encode())
    assert {name: set(ids) for name, ids in found.items()} == {THING: {"a", "a::1", "b"}, OTHER: {"a"}}


def test_each_format_is_recognized():
    found = [layouts(json.dumps(document).encode()) for document in FORMATS.values()]
    assert found == [{layout} for layout in Layout]


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({"Entries": None}, {Layout.PER_DEVICE}),
        ({"PodDeviceEntries": None}, {Layout.PER_CONTAINER}),
        ({"Data": {"PodDeviceEntries": None}, "Checksum": 1}, {Layout.CHECKED, Layout.BY_NODE}),
        (
            {"Data": {"PodDeviceEntries": [entry(THING, DeviceIDs=None)]}, "Checksum": 1},
            {Layout.CHECKED, Layout.BY_NODE},
        ),
    ],
)
def test_a_format_that_nothing_tells_may_be_several(document, found):
    assert layouts(json.dumps(document).encode()) == found


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (V1_8, {THING: (b"", b"", b""), OTHER: (b"",)}),
        (LISTS, {THING: (b"\n\0", b""), OTHER: (b"",)}),
        ({"Data": NODES, "Checksum": 1}, {THING: (b"\n\0", b""), OTHER: (b"",)}),
    ],
)
def test_what_containers_were_given_with_their_devices(document, found):
    assert answers(json.dumps(document).encode()) == found


def test_an_answer_that_no_kubelet_writes():
    document = {"PodDeviceEntries": [entry(THING, DeviceIDs=["a"], AllocResp="not base 64!")]}
    with pytest.raises(KubeletError, match="not in a format of any kubelet"):
        answers(json.dumps(document).encode())


def test_the_numa_nodes_that_the_kubelet_knew():
    ids = {"-1": ["near none"], "0": ["a", "b"], "1": ["b"]}
    document = {"Data": {"PodDeviceEntries": [entry(THING, DeviceIDs=ids)], "RegisteredDevices": {}}, "Checksum": 1}
    found = notes(json.dumps(document).encode())[THING]
    assert {id_: noted.numa_nodes for id_, noted in found.items()} == {"near none": (), "a": (0,), "b": (0, 1)}


@each_format
def test_the_containers_that_hold_an_id(document):
    found = notes(json.dumps(document).encode())[THING]
    given = b"" if "Entries" in document else b"\n\0"  # 1.8 writes no answer down
    assert found["a::1"].containers == {Container("1a", "c", given)}
    assert found["b"].containers == {Container("1a", "d")}


def test_two_containers_with_the_same_id():
    entries = [entry(THING, container=name, DeviceIDs={"-1": ["a"]}) for name in ("init", "c")]
    document = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1}
    found = notes(json.dumps(document).encode())[THING]["a"]
    assert found.containers == {Container("1a", "init"), Container("1a", "c")}
    assert found.pods == {"1a"}


def test_a_container_of_no_pod() -> None:
    """A journal with such a pod couldn't be read again."""
    document = {"PodDeviceEntries": [{**entry(THING, DeviceIDs=["a"]), "PodUID": ""}]}
    assert notes(json.dumps(document).encode())[THING]["a"].pods == frozenset()
    damaged = {"PodDeviceEntries": [{**entry(THING, DeviceIDs=["a"]), "PodUID": "\ud800"}]}
    with pytest.raises(KubeletError):
        notes(json.dumps(damaged).encode())


def test_a_real_file():
    # 1.2x, from a public lab's log
    raw = (
        b'{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check",'
        b'"ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},"AllocResp":'
        b'"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},'
        b'"Checksum":3660592824}'
    )
    assert {name: set(ids) for name, ids in notes(raw).items()} == {"nvidia.com/gpu": {"tegra"}}


@pytest.mark.parametrize(
    "document",
    [
        {"Entries": None},
        {"Entries": []},
        {"PodDeviceEntries": None, "RegisteredDevices": None},
        {"PodDeviceEntries": [], "RegisteredDevices": {}},
        {"Data": {"PodDeviceEntries": None, "RegisteredDevices": {THING: ["a"]}}, "Checksum": 1},
    ],
)
def test_nobody_holds_anything(document):
    assert notes(json.dumps(document).encode()) == {}


@pytest.mark.parametrize("ids", [None, [], {}, {"0": None}, {"0": []}])
def test_a_container_may_hold_nothing(ids):
    document = {"Data": {"PodDeviceEntries": [entry(THING, DeviceIDs=ids)], "RegisteredDevices": {}}, "Checksum": 1}
    assert notes(json.dumps(document).encode()) == {THING: {}}


def test_the_checksum_is_no_matter():
    # a kubelet that forgets everything because of it has running containers nevertheless
    assert notes(json.dumps({"Data": NODES, "Checksum": "no number"}).encode())[OTHER].keys() == {"a"}


# everything else


@each_format
def test_a_file_cut_short_is_an_error(document):
    raw = json.dumps(document).encode()
    for length in range(len(raw)):
        with pytest.raises(KubeletError, match="kubelet_internal_checkpoint: not in a format of any kubelet"):
            notes(raw[:length])


@pytest.mark.parametrize(
    "raw",
    [
        b"null",
        b"[]",
        b"{}",
        b'"PodDeviceEntries"',
        b'["PodDeviceEntries"]',
        b'{"Data": null}',
        b'{"Data": "Entries"}',
        b'{"Data": ["Entries"]}',
        b'{"Data": {}, "PodDeviceEntries": []}',
        b'{"PodDeviceEntries": 0}',
        b'{"PodDeviceEntries": ""}',
        b'{"PodDeviceEntries": {}}',
        b'{"PodDeviceEntries": [null]}',
        b'{"PodDeviceEntries": ["ResourceName"]}',
        b'{"PodDeviceEntries": [{"DeviceIDs": ["a"]}]}',
        b'{"PodDeviceEntries": [{"ResourceName": "r"}]}',
        b'{"PodDeviceEntries": [{"ResourceName": 1, "DeviceIDs": []}]}',
        b'{"PodDeviceEntries": [{"ResourceName": "r", "DeviceIDs": "abc"}]}',
        b'{"PodDeviceEntries": [{"ResourceName": "r", "DeviceIDs": 0}]}',
        b'{"PodDeviceEntries": [{"ResourceName": "r", "DeviceIDs": [["a"]]}]}',
        b'{"PodDeviceEntries": [{"ResourceName": "r", "DeviceIDs": {"0": "abc"}}]}',
        b'{"PodDeviceEntries": [{"ResourceName": "r", "DeviceIDs": {"0": [1]}}]}',
        b'{"PodDeviceEntries": [{"ResourceName": "r", "DeviceIDs": ["\\ud800"]}]}',
        b'{"Entries": [{"ResourceName": "r", "DeviceID": null}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=lambda raw: raw[:70].decode(errors="replace"),
)
def test_what_no_kubelet_writes_is_an_error(raw):
    with pytest.raises(KubeletError):
        notes(raw)


NAMES = st.sampled_from(["Data", "Entries", "PodDeviceEntries", "ResourceName", "DeviceID", "DeviceIDs", "Checksum"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | NAMES | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)


def is_an_answer_or_a_kubelet_error(raw):
    for read in (layouts, answers):
        with contextlib.suppress(KubeletError):
            read(raw)
    try:
        held = notes(raw)
    except KubeletError:
        return
    assert all(isinstance(id_, str) for ids in held.values() for id_ in ids)


@given(JSON)
@settings(deadline=None, max_examples=100)
def test_whatever_the_document_the_error_is_the_kubelets(document):
    is_an_answer_or_a_kubelet_error(json.dumps(document).encode())


@given(st.binary(max_size=100))
@settings(deadline=None)
def test_whatever_the_bytes_the_error_is_the_kubelets(raw):
    is_an_answer_or_a_kubelet_error(raw)


@each_format
@given(data=st.data())
@settings(deadline=None, max_examples=50)
def test_whatever_byte_is_damaged_the_error_is_the_kubelets(document, data):
    raw = bytearray(json.dumps(document).encode())
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    is_an_answer_or_a_kubelet_error(bytes(raw))


@pytest.mark.parametrize(("id_", "found"), [(5, "5"), (None, "None"), (["a"], r"\['a'\]")])
def test_what_is_no_id_is_named(id_, found):
    raw = json.dumps({"Entries": [entry(THING, DeviceID=id_)]}).encode()
    with pytest.raises(KubeletError, match=f"expected a string, found {found}"):
        notes(raw)
