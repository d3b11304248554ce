"""Another device plugin has taken a resource's name: its ids in the kubelet's checkpoint tell."""

import json

import pytest

from tests.support.waiting import until

R = "example.com/thing"
TEXT = f"another device plugin has registered {R}: the kubelet lists ids that this gateway never offered: theirs-0"


@pytest.mark.parametrize("again", [True, False], ids=["writes again and again", "wrote as all registered"])
@pytest.mark.parametrize("kubelet", ["1.37"], indirect=True)
async def test_ids_of_another_plugin_are_told_of(process, kubelet, short_path, again):
    (short_path / "pods" / "another").mkdir(parents=True)
    await process.start({"name": R, "driver": "simulated", "options": {"count": 1}})
    await kubelet.wait_for(lambda: kubelet.counts(R)[1] == 1)
    checkpoint = kubelet.directory / "kubelet_internal_checkpoint"

    async def told():
        """What a kubelet wrote just after our list proves nothing until it has been the last word for a while."""
        if any(TEXT in line for line in process.log):
            return True
        if checkpoint.exists() and "theirs-0" in checkpoint.read_text() and not again:
            return False
        data = {"PodDeviceEntries": None, "RegisteredDevices": {R: ["theirs-0"]}}
        new = checkpoint.with_suffix(".new")
        new.write_text(json.dumps({"Data": data, "Checksum": 1}))
        new.rename(checkpoint)
        return False

    await until(told, 60, pause=0.2)
    assert await process.end() == 0
    assert sum(TEXT in line and '"level": "warning"' in line for line in process.log) == 1
