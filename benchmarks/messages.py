"""The kubelet's messages as bytes, encoded and decoded by hand, independently of the gateway's code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

ALLOCATE = "/v1beta1.DevicePlugin/Allocate"
WATCH = "/v1beta1.DevicePlugin/ListAndWatch"
OPTIONS = "/v1beta1.DevicePlugin/GetDevicePluginOptions"
REGISTER = "/v1beta1.Registration/Register"


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    low = b""
    while number > 0x7F:
        low += bytes([number & 0x7F | 0x80])
        number >>= 7
    return low + bytes([number])


def device_list(ids: Iterable[str], unhealthy: str = "") -> bytes:
    """A ListAndWatchResponse."""
    return b"".join(device(id_, healthy=id_ != unhealthy) for id_ in ids)


def device(id_: str, *, healthy: bool) -> bytes:
    """One device of a ListAndWatchResponse."""
    return _field(1, _field(1, id_.encode()) + _field(2, b"Healthy" if healthy else b"Unhealthy"))


def allocate_request(id_: str) -> bytes:
    return _field(1, _field(1, id_.encode()))


def register_request(endpoint: str, resource: str) -> bytes:
    return _field(1, b"v1beta1") + _field(2, endpoint.encode()) + _field(3, resource.encode())


def read_register(raw: bytes) -> tuple[str, str]:
    """The resource and the endpoint of a RegisterRequest."""
    fields = dict(_fields(raw))
    return fields[3].decode(), fields[2].decode()


def _fields(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message whose fields are all strings or messages of less than 128 bytes."""
    place = 0
    while place < len(raw):
        number, length = raw[place] >> 3, raw[place + 1]
        yield number, raw[place + 2 : place + 2 + length]
        place += 2 + length
