"""What is said of a directory in which no kubelet is, or can be."""

import asyncio
import base64
import json
import os
from pathlib import Path

import pytest

from dpgateway.deviceplugin.server.sockets import LONGEST_ENDPOINT, SocketNames, too_deep
from dpgateway.kit.unix import LONGEST
from dpgateway.node import checkpoint
from dpgateway.node.directory import LARGEST_CHECKPOINT, Absence, is_there, misplaced, read_checkpoint, why_none
from dpgateway.resource.ownership import Ownership
from tests.support.counting import leading_to


def test_a_directory_or_nothing_is_no_fault(tmp_path):
    assert misplaced(tmp_path) == misplaced(tmp_path / "later") == ""


def test_a_file_is(tmp_path):
    file = tmp_path / "file"
    file.touch()
    assert f"found {file}, which is a file" in misplaced(file)
    assert misplaced(tmp_path / "kubelet.sock").endswith(f"expected its directory: {tmp_path}")


async def test_a_path_too_long_for_sockets_below_it(tmp_path):
    await (ownership := Ownership(tmp_path, "example.com/a")).acquire()
    names = SocketNames(ownership)
    names.base.touch()
    registered = names.link()
    names.remove()
    ownership.end()
    assert len(f"/{registered}") == len(LONGEST_ENDPOINT)
    fits = "/" + "x" * (LONGEST - len(LONGEST_ENDPOINT) - 1)
    assert too_deep(Path(fits)) == ""
    assert f"expected at most {len(fits)}" in too_deep(Path(fits + "x"))


def test_why_there_is_no_kubelet(tmp_path):
    assert why_none(tmp_path).startswith(f"{tmp_path} has no kubelet.sock; expected a running kubelet")
    assert why_none(tmp_path / "none").startswith(f"{tmp_path / 'none'} doesn't exist")


def test_a_directory_that_may_not_be_seen_is_none(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert not is_there(loop)
    assert why_none(loop / "below") == f"can't look at {loop / 'below/kubelet.sock'}: {os.strerror(40)}"


class TestAbsence:
    async def test_it_is_told_once(self, tmp_path, caplog):
        absence = Absence(tmp_path, patience=0)
        for _ in range(3):
            absence.look(there=False)
            await settled()
        (record,) = caplog.records
        assert record.getMessage().startswith(f"no kubelet for 0 s: {tmp_path} has no kubelet.sock")

    async def test_one_that_came_meanwhile_is_not_missed(self, tmp_path, caplog):
        absence = Absence(tmp_path, patience=0)
        absence.look(there=False)
        absence.look(there=True)
        await settled()
        assert not caplog.records

    @pytest.mark.parametrize("times", [2, 3])
    async def test_each_absence_is_told(self, tmp_path, caplog, times):
        absence = Absence(tmp_path, patience=0)
        for _ in range(times):
            absence.look(there=False)
            await settled()
            absence.look(there=True)
        assert len(caplog.records) == times


async def settled():
    """Until the timers that are due have run."""
    due = asyncio.Event()
    asyncio.get_running_loop().call_later(0, due.set)
    await due.wait()


def test_only_a_regular_checkpoint_is_read(tmp_path):
    path = tmp_path / "kubelet_internal_checkpoint"
    path.write_text("{}")
    raw, found = read_checkpoint(tmp_path)
    assert (raw, found.st_mtime) == (b"{}", path.stat().st_mtime)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match=f"{path}: expected a regular file, found mode 10644"):
        read_checkpoint(tmp_path)


def test_no_descriptor_is_left_by_what_is_no_checkpoint(tmp_path):
    (tmp_path / "kubelet_internal_checkpoint").mkdir()
    for _ in range(20):
        with pytest.raises(OSError, match="expected a regular file, found mode 40755"):
            read_checkpoint(tmp_path)
    assert leading_to(tmp_path / "kubelet_internal_checkpoint") == 0


def test_a_checkpoint_of_two_resources_all_held(tmp_path):
    """Each has the longest list that a kubelet accepts, and its plugin's answers repeat the ids."""
    ids = [f"{number:040}" for number in range(76_000)]
    pod = {"PodUID": "uid", "ContainerName": "user", "AllocResp": base64.b64encode(",".join(ids).encode()).decode()}
    names = ["example.com/a", "example.com/b"]
    entries = [pod | {"ResourceName": name, "DeviceIDs": {"0": ids}} for name in names]
    data = {"PodDeviceEntries": entries, "RegisteredDevices": dict.fromkeys(names, ids)}
    (tmp_path / "kubelet_internal_checkpoint").write_text(json.dumps({"Data": data, "Checksum": 1}))
    notes = checkpoint.parse(read_checkpoint(tmp_path).content).notes
    assert [len(note) for note in notes.values()] == [76_000, 76_000]


def test_a_checkpoint_too_large_is_refused(tmp_path):
    with (tmp_path / "kubelet_internal_checkpoint").open("wb") as file:
        file.truncate(LARGEST_CHECKPOINT)
        assert len(read_checkpoint(tmp_path)[0]) == LARGEST_CHECKPOINT
        file.truncate(LARGEST_CHECKPOINT + 1)
    with pytest.raises(OSError, match=f"expected at most {LARGEST_CHECKPOINT} bytes, found {LARGEST_CHECKPOINT + 1}"):
        read_checkpoint(tmp_path)
