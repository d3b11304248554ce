"""The four formats. The long texts are files that real device managers wrote."""

import json
from typing import get_args

import pytest

from dpgateway_simulator.kubelet.behaviour import Layout
from dpgateway_simulator.kubelet.checkpoint import Checkpoint, CorruptError, checksum, read, spew, write
from dpgateway_simulator.kubelet.ledger import Holding
from dpgateway_simulator.wire.dialects import Answer
from tests.simulator.rig import X

REAL_1_8 = '{"Entries":[{"PodUID":"p1","ContainerName":"c","ResourceName":"x.com/y","DeviceID":"d1"}]}'
RESPONSE = (
    "ChIKDEtVQkVMRVRTX0lEUxICZDESEgoIL21udC9yaWcSBC90bXAYARocCgsvZGV2L3JpZy1kMRIJL2Rldi9udWxsGgJydyIKCgNyaWcSA3llcw=="
)
OTHER = (
    "ChIKDEtVQkVMRVRTX0lEUxICZDASEgoIL21udC9yaWcSBC90bXAYARocCgsvZGV2L3JpZy1kMBIJL2Rldi9udWxsGgJydyIKCgNyaWcSA3llcw=="
)
REAL_1_12 = (
    '{"Data":{"PodDeviceEntries":[{"PodUID":"p1","ContainerName":"c","ResourceName":"x.com/y","DeviceIDs":["d1"],'
    f'"AllocResp":"{RESPONSE}"}},{{"PodUID":"p2","ContainerName":"c","ResourceName":"x.com/y","DeviceIDs":["d0"],'
    f'"AllocResp":"{OTHER}"}}],"RegisteredDevices":{{"x.com/y":["d0","d1"]}}}},"Checksum":1152478782}}'
)
REAL_1_24 = (
    '{"Data":{"PodDeviceEntries":[{"PodUID":"p1","ContainerName":"c","ResourceName":"x.com/y","DeviceIDs":{"-1":["d0"]},'
    f'"AllocResp":"{OTHER}"}},{{"PodUID":"p2","ContainerName":"c","ResourceName":"x.com/y","DeviceIDs":{{"0":["d1"]}},'
    f'"AllocResp":"{RESPONSE}"}}],"RegisteredDevices":{{"x.com/y":["d1","d0"]}}}},"Checksum":341359388}}'
)
HOLDING = Holding("p1", "c", X, {-1: ["d0"]}, Answer(envs={"A": "b"}))
LAYOUTS = get_args(Layout)
DEVICE, CONTAINER, CHECKED, NUMA = LAYOUTS


@pytest.mark.parametrize("text", [REAL_1_12, REAL_1_24])
def test_the_checksum_is_that_of_real_files(text: str) -> None:
    content = json.loads(text)
    assert checksum(content["Data"]) == content["Checksum"]


@pytest.mark.parametrize(
    ("layouts", "text"),
    [((CHECKED,), REAL_1_12), ((NUMA, CHECKED), REAL_1_12), ((NUMA,), REAL_1_24)],
)
def test_real_files_are_read(layouts: tuple[Layout, ...], text: str) -> None:
    found = read(layouts, text)
    assert found.registered == ("x.com/y",)
    assert {one.pod: one.ids for one in found.holdings} in ({"p1": {"d1"}, "p2": {"d0"}}, {"p1": {"d0"}, "p2": {"d1"}})
    assert all(one.answer is not None and one.answer.mounts[0].host_path == "/tmp" for one in found.holdings)


def test_entries_per_device_are_gathered() -> None:
    text = write(DEVICE, [Holding("p", "c", X, {0: ["b", "a"]}, None)], {})
    assert json.loads(text)["Entries"][0] == {
        "PodUID": "p",
        "ContainerName": "c",
        "ResourceName": X,
        "DeviceID": "a",
    }
    (found,) = read((DEVICE,), text).holdings
    assert found.ids == {"a", "b"}
    (found,) = read((DEVICE,), REAL_1_8).holdings
    assert (found.pod, found.container, found.resource, found.ids) == ("p1", "c", "x.com/y", {"d1"})


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_what_is_written_is_read_again(layout: Layout) -> None:
    found = read((layout,), write(layout, [HOLDING], {X: ["d0"], "example.com/y": []}))
    assert found.registered == (X, "example.com/y")
    (one,) = found.holdings
    assert (one.pod, one.container, one.resource, one.ids, one.answer) == ("p1", "c", X, {"d0"}, HOLDING.answer)


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_writes_unescaped_text(layout: Layout) -> None:
    text = write(layout, [], {X: ["gerät"]})
    assert '["gerät"]' in text
    assert read((layout,), text).registered == (X,)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_is_written_as_null(layout: Layout) -> None:
    text = write(layout, [], {})
    assert "null" in text
    assert read((layout,), text) == Checkpoint()


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (DEVICE, CONTAINER),
        (DEVICE, NUMA),
        (CONTAINER, DEVICE),
        (CONTAINER, CHECKED),
    ],
)
def test_older_readers_ignore_unknown_keys(reader: Layout, writer: Layout) -> None:
    assert read((reader,), write(writer, [HOLDING], {X: ["d0"]})) == Checkpoint()


@pytest.mark.parametrize(
    ("reader", "text", "error"),
    [
        (CHECKED, write(CONTAINER, [HOLDING], {}), "corrupted"),
        (CHECKED, write(NUMA, [HOLDING], {}), "cannot unmarshal object"),
        (NUMA, write(CHECKED, [HOLDING], {}), "cannot unmarshal array"),
        (DEVICE, '{"Entries":[{"PodUID":"p1"}]}', "^json: a value is missing, or of another type$"),
        (NUMA, '{"Data":{"PodDeviceEntries":[null]}}', "^json: a value is missing, or of another type$"),
        (NUMA, REAL_1_24.replace("d0", "d9"), "corrupted"),
        (CONTAINER, "", "Expecting value"),
        (NUMA, "[]", "not an object"),
        (NUMA, REAL_1_24[:-20], "Expecting|Unterminated|delimiter"),
    ],
)
def test_what_a_release_cannot_read(reader: Layout, text: str, error: str) -> None:
    with pytest.raises(CorruptError, match=error):
        read((reader,), text)


def test_the_text_that_is_hashed() -> None:
    data = {"PodDeviceEntries": None, "RegisteredDevices": {"b": [], "a": ["1", "2"]}}
    assert spew(data) == (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)<nil> "
        "RegisteredDevices:(map[string][]string)map[a:[1 2] b:[]]}"
    )
