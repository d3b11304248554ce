import pytest

from dpgateway_simulator.wire import v1beta1
from dpgateway_simulator.wire.device_list import Device, DeviceList


def test_it_reads_what_betterproto_writes() -> None:
    topology = v1beta1.TopologyInfo([v1beta1.NumaNode(0), v1beta1.NumaNode(300), v1beta1.NumaNode(-1)])
    devices = [
        v1beta1.Device("d0", "Healthy"),
        v1beta1.Device("ü" * 100, "Unhealthy", topology),
        v1beta1.Device("d2", "", v1beta1.TopologyInfo([])),
        v1beta1.Device(),
    ]
    data = bytes(v1beta1.ListAndWatchResponse(devices))
    assert DeviceList().parse(data).devices == (
        Device("d0", "Healthy"),
        Device("ü" * 100, "Unhealthy", (0, 300, -1)),
        Device("d2", "", ()),
        Device("", ""),
    )
    assert DeviceList().parse(b"").devices == ()


def test_unknown_fields_are_skipped() -> None:
    inner = b"\x0a\x02d0\x12\x07Healthy" + b"\x20\x05" + b"\x2d1234" + b"\x3112345678"
    assert DeviceList().parse(b"\x0a" + bytes([len(inner)]) + inner + b"\x10\x01").devices == (Device("d0", "Healthy"),)


@pytest.mark.parametrize(
    "data", [b"\x0a\x05d0", b"\x0a", b"\xff", b"\x0b", b"\x0a\x03\x0a\x01\xff", b"\x0a\x02\x18\x01"]
)
def test_rubbish(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"beyond|expected|decode"):
        DeviceList().parse(data)
