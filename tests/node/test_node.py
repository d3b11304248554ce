"""What a node makes of the kubelet's files. How they are watched, read and counted, the other files here say."""

import asyncio
import json
import os

import pytest

from dpgateway.node.incarnation import Change
from dpgateway.node.node import Node
from tests.support.waiting import until

THING = "example.com/thing"
ENTRY = {"PodUID": "1a", "ContainerName": "c", "ResourceName": THING, "DeviceIDs": {"0": ["a"]}, "AllocResp": None}
HELD = json.dumps({"Data": {"PodDeviceEntries": [ENTRY], "RegisteredDevices": {}}, "Checksum": 0})


@pytest.fixture
async def seen(tmp_path):
    """A node that runs, and the changes of which it told."""
    changes: list[Change] = []
    node = Node("n1", tmp_path, [THING], changes.append, lambda: False)
    running = asyncio.ensure_future(node.run())
    yield node, changes
    running.cancel()
    await asyncio.wait([running])


async def test_a_new_kubelets_older_checkpoint_proves_nothing(seen, tmp_path):
    """It may have forgotten what containers hold, so nothing is free because the file doesn't have it."""
    node, changes = seen
    checkpoint, socket = tmp_path / "kubelet_internal_checkpoint", tmp_path / "kubelet.sock"
    checkpoint.write_text(HELD)
    os.utime(checkpoint, (1000, 1000))
    socket.touch()
    await until(lambda: changes)
    holdings = node.holdings[THING].value
    assert changes == [Change.NEW]
    assert (holdings.held, holdings.written, holdings.counted) == ({"a"}, 1000, frozenset())
    assert holdings.kubelet_since == pytest.approx(socket.stat().st_ctime)


def test_a_checkpoint_that_cannot_be_read_is_complained_of_once_each_time(tmp_path, caplog):
    checkpoint = tmp_path / "kubelet_internal_checkpoint"
    node = Node("n1", tmp_path, [THING], lambda change: None, lambda: False)
    for text in ("{", "{", HELD, "{"):
        checkpoint.write_text(text)
        os.utime(checkpoint, (1000, 1000))  # no kubelet is writing it now
        node.read_checkpoint()
    why = "no id is dropped from any list, because the checkpoint can't be read: kubelet_internal_checkpoint: not in"
    assert [message[: len(why)] for message in caplog.messages] == [why] * 2
    assert node.holdings[THING].value.held is None
    assert node.holdings[THING].value.last_known == {"a"}


def test_a_checkpoint_that_a_kubelet_may_be_writing_is_no_reason_to_complain(tmp_path, caplog):
    (tmp_path / "kubelet_internal_checkpoint").write_text("{")
    node = Node("n1", tmp_path, [THING], lambda change: None, lambda: False)
    node.read_checkpoint()
    assert (caplog.messages, node.holdings[THING].value.held) == ([], None)
