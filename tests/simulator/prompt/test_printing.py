from typing import Any

from dpgateway_simulator.prompt import printing
from tests.simulator.rig import Rig, X


async def test_table_has_gone_devices(rig: Rig) -> None:
    kubelet, plugin = await rig.both("1.34")
    await kubelet.admit("p1", {"c": {X: 2}})
    assert printing.state(kubelet) == f"1.34 runs  {X} 2/2  1 pod"
    await plugin.set(d1=None)
    assert printing.lines(kubelet.resources())[-1].split() == ["d1", "gone", "-", "p1/c"]
    kubelet.remove("p1")
    assert "p1/c (deleted)" in printing.lines(kubelet.resources())[-1]
    kubelet._running().incarnation.crash("panic: oops")
    assert printing.state(kubelet) == "1.34 crashed: panic: oops"


def test_many_devices_fit_a_few_lines() -> None:
    def device(number: int, **more: object) -> dict[str, Any]:
        return {"id": f"d{number}", "health": "Healthy", "numa": [], "holders": []} | more

    devices = [device(1, holders=["p/c"]), device(2, health="Unhealthy"), *map(device, range(3, 100))]
    found = {X: {"plugin": "gone", "capacity": 99, "allocatable": 98, "devices": devices}}
    assert len(printing.lines(found)) == 101
    assert printing.lines(found, 10) == [
        f"{X}: 98 of 99 allocatable, 1 held, its plugin is gone",
        "  DEVICE  HEALTH     NUMA  HELD BY",
        "  d1      Healthy    -     p/c",
        "  d2      Unhealthy  -     -",
        "  ... and 97 healthy and free",
    ]
    assert printing.lines(found, 3)[-1] == "... and 3 lines more"
