"""A driver is told that its devices are free, although no other pod comes."""

import pytest

R = "example.com/thing"
THING = {"name": R, "driver": "simulated", "options": {"count": 1, "release": True}}


@pytest.fixture(autouse=True)
def another_pod(short_path):
    """Each node has pods of its own."""
    (short_path / "pods" / "another").mkdir(parents=True)


@pytest.mark.parametrize("kubelet", ["1.10", "1.37"], indirect=True)
async def test_device_whose_last_share_is_free(process, kubelet):
    """Before 1.13 only the pods' directories tell."""
    await process.start(THING | {"shares": 2})
    await kubelet.wait_for(lambda: kubelet.counts(R)[1] == 2)
    for pod in "ab":
        assert (await kubelet.admit(pod, {"c": {R: 1}}))["ok"]
    kubelet.remove("a")
    kubelet.remove("b")
    await process.said("released node-0", seconds=90)  # also if they ended before their directories were seen
    assert await process.end() == 0
    assert sum("released node-0" in line for line in process.log) == 1


OTHER = {"name": "example.com/other", "driver": "simulated", "options": {"count": 1}}


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ([OTHER], "the resource isn't configured any more"),
        (
            [{"name": R, "driver": "chardev", "options": {"paths": ["/dev/null"]}}],
            "the resource's driver has no release() now",
        ),
        (
            [THING | {"options": {"count": 1, "release": True, "device_id_prefix": "other"}}],
            "it doesn't list it any more",
        ),
    ],
    ids=["resource", "driver", "device"],
)
@pytest.mark.parametrize("restarted", [False, True], ids=["reloaded", "restarted"])
@pytest.mark.parametrize("kubelet", ["1.37"], indirect=True)
async def test_leak_of_what_left_the_configuration(process, kubelet, after, why, restarted):
    await process.start(THING)
    await kubelet.wait_for(lambda: kubelet.counts(R)[1] == 1)
    assert (await kubelet.admit("a", {"c": {R: 1}}))["ok"]
    if restarted:
        assert await process.end() == 0
        await process.start(*after)
    else:
        process.reload(*after)
    await process.said(": example.com/thing" if not restarted else "serving 1 resource", count=1 + restarted)
    kubelet.remove("a")
    await process.said("device node-0 of example.com/thing is free again, but driver simulated isn't told", seconds=90)
    assert await process.end() == 0
    (line,) = [line for line in process.log if "isn't told" in line]
    assert why in line
