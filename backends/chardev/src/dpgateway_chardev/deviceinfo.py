"""Device-info files, which describe a device to CNI plugins through Multus: the device-info specification of the
Network Plumbing Working Group.

A file exists from its device's allocation to its release.
"""

from __future__ import annotations

from pathlib import Path

from dpgateway.sysfs import WatchedTree

_RUN, _BELOW = "var/run", "k8s.cni.cncf.io/devinfo/dp"
_EVERYBODY_READS = 0o444


class DeviceInfo:
    """The device-info files of one resource. Both methods raise OSError and OutsideError.

    Source: k8snetworkplumbingwg/network-attachment-definition-client, pkg/utils/cniconfig.go.
    """

    def __init__(self, resource: str, host: str) -> None:
        self._prefix = resource.replace("/", "-")
        self._host = WatchedTree(host, "")

    def write(self, id_: str, text: str) -> None:
        """Writes the file and renames it into place, because Multus may read at any time."""
        path = self._path(id_)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}")
        beside.unlink(missing_ok=True)
        beside.write_text(text)
        beside.chmod(_EVERYBODY_READS)
        beside.replace(path)

    def remove(self, id_: str) -> None:
        self._path(id_).unlink(missing_ok=True)

    def _path(self, id_: str) -> Path:
        return self._host.at(self._host.follow(_RUN)) / _BELOW / f"{self._prefix}-{id_.replace('/', '-')}-device.json"
