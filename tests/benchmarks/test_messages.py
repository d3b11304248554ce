"""The bytes that are written by hand are those that another implementation of protobuf writes."""

from benchmarks import messages
from dpgateway_simulator.wire import v1beta1


def test_lists():
    ids = [f"device-{'x' * length}" for length in (0, 1, 60, 300)]
    devices = [v1beta1.Device(id=i, health="Unhealthy" if i == ids[1] else "Healthy") for i in ids]
    assert messages.device_list(ids, ids[1]) == bytes(v1beta1.ListAndWatchResponse(devices=devices))


def test_allocate():
    request = v1beta1.AllocateRequest([v1beta1.ContainerAllocateRequest(devices_ids=["a"])])
    assert messages.allocate_request("a") == bytes(request)


def test_register_there_and_back():
    raw = messages.register_request("dpgateway/a.sock", "example.com/thing")
    request = v1beta1.RegisterRequest("v1beta1", "dpgateway/a.sock", "example.com/thing")
    assert raw == bytes(request)
    request.options = v1beta1.DevicePluginOptions(pre_start_required=True)
    assert messages.read_register(bytes(request)) == ("example.com/thing", "dpgateway/a.sock")
