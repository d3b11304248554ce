"""The page as text."""

import re
from dataclasses import replace

from dpgateway.kit.log import LogEvent
from dpgateway.resource.front import HolderStatus
from dpgateway.resource.standing import Standing
from dpgateway.status import SCHEMA, GatewayStatus, Reloads, ResourceStatus, Status
from dpgateway.status.values import Counts, DeviceStatus, DriverStatus, KubeletStatus, PodResourcesStatus, Trouble
from dpgateway.web.statusz import lines

STARTED, NOW = "2026-01-01T00:00:05Z", "2026-01-01T03:04:00Z"
SERVING = Standing("deviceplugin", "serving", NOW, registered=True, streaming=True, listed=True, api="v1beta1")
FREE = DeviceStatus("free", "free", True, None, None, False, False, None, (), (), {})
SICK = DeviceStatus("sick\x1b[2J", "sick", False, "no\nanswer", NOW, False, False, None, (), (), {})
HELD = DeviceStatus(
    "held", "held", True, None, None, False, True, None, (HolderStatus("ns", "pod", None, "c"),), (), {}
)
WITHHELD = replace(HELD, id="withheld", reason="withheld: held as x")


def status(troubles=()):
    devices = FREE, SICK, HELD, WITHHELD
    counts = Counts(listed=3, healthy=2, unhealthy=1, held=1, free=1, lost=0)
    resource = ResourceStatus(
        "example.com/a", True, (SERVING,), None, DriverStatus("x", "1", NOW, None, None), counts, devices
    )
    gateway, kubelet = GatewayStatus("1.2", 1, "node-a", STARTED), KubeletStatus(True, NOW, None, "v1beta1", None)
    events = tuple(LogEvent(NOW, "info", f"event {number}", "example.com/a", ("held",)) for number in range(60))
    asked = PodResourcesStatus(None, None)
    return Status(SCHEMA, NOW, gateway, Reloads(NOW), kubelet, asked, troubles, (resource,), events)


def text(*troubles):
    return "".join(lines(status(troubles), ["/statusz", "/"]))


def test_head_of_kubernetes_components():
    head = re.compile(
        r"\ndpgateway statusz\n"
        r"Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and "
        r"is for debugging purposes only\.\n\n"
        r"Started: Thu Jan  1 00:00:05 UTC 2026\n"
        r"Up: 3 hr 03 min 55 sec\n"
        r"Python version: 3\.\d+\.\S+\n"
        r"Binary version: 1\.2\n"
        r"Paths: / /statusz\n"
    )
    assert head.match(text())


def test_held_and_unhealthy_devices():
    found = text().splitlines()
    at = found.index("  example.com/a: 1 free, 1 held, 1 unhealthy of 3; serving, driver x")
    assert found[at + 1 : at + 5] == [
        f"    sick\\x1b[2J, Unhealthy since {NOW}: no\\nanswer",
        "    held, held by ns/pod (c)",
        "    withheld, withheld: held as x, held by ns/pod (c)",
        "",
    ]


def test_troubles_first_with_advice():
    found = text(Trouble("error", "", "no kubelet", NOW, "look"), Trouble("warning", "example.com/a", "x", None, None))
    assert f"  error: no kubelet (since {NOW}); look\n  warning: example.com/a: x\n" in found
    assert found.index("no kubelet") < found.index("Resources:")
    assert "Troubles: none\n" in text()


def test_the_last_events():
    found = text()
    assert "event 9 " not in found
    assert found.endswith(f"  {NOW} info    event 59 (example.com/a held)\n")
