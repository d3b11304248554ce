"""What a start deletes, and what it keeps."""

from dpgateway_simulator import behaviour
from tests.simulator.rig import Rig, X


async def test_a_sub_directory_and_its_sockets_survive(rig: Rig, era: str) -> None:
    kubelet = await rig.kubelet(era)
    (kubelet.directory / "sub").mkdir()
    plugin = await rig.plugin(kubelet, "sub/x.sock").start()
    await kubelet.restart()
    assert (kubelet.directory / "sub/x.sock").is_socket()
    await plugin.register()
    await kubelet.wait_for(lambda: kubelet.counts(X) == (2, 2))


async def test_killed_kubelet_keeps_allocations(rig: Rig, era: str) -> None:
    kubelet, plugin = await rig.both(era)
    await kubelet.admit("p1", {"c": {X: 1}})
    stray, folder = kubelet.directory / "stray", kubelet.directory / "sub"
    stray.write_text("x")
    folder.mkdir()
    (folder / "kept").write_text("x")
    await kubelet.kill()
    assert (kubelet.directory / "kubelet.sock").exists()
    replies = await kubelet.restart()
    assert [(reply["pod"], reply["ok"]) for reply in replies] == [("p1", True)]
    assert not (kubelet.directory / "x.sock").exists()
    assert stray.exists() == (behaviour(era).minor >= 33)
    assert (folder / "kept").exists()
    assert kubelet.counts(X)[1] in {0, None}
    await plugin.stop()
    again = await rig.plugin(kubelet, "again.sock").start()
    assert (await kubelet.admit("p2", {"c": {X: 1}}))["ok"]
    assert {*plugin.asked(), *again.asked()} == {("d0",), ("d1",)}
