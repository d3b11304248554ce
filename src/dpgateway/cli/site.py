"""Probes the surroundings of a gateway: what it can reach, and paths that are elsewhere than expected."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dpgateway.kit import unix
from dpgateway.node.directory import SOCKET, Places, is_there, why_none
from dpgateway.node.runtime import SOCKETS
from dpgateway.preflight import Site

ROOTS = tuple(map(Path, ("/var/lib/kubelet", "/var/lib/k0s/kubelet", "/var/snap/microk8s/common/var/lib/kubelet")))
"""Each --root-dir that a distribution gives its kubelet."""
DEV = Path("/dev")
_CONTEXT = Path("/proc/self/attr/current")
_SECONDS = 1.0


def look(  # noqa: PLR0913  two of them are places of this machine
    places: Places,
    state_dir: Path,
    runtime: Path | None,
    pod_uid: str,
    *,
    roots: Iterable[Path] = ROOTS,
    sockets: Iterable[Path] = SOCKETS,
) -> Site:
    """Connects to the kubelet's sockets without a word, and changes nothing. Blocks.

    ``runtime``: its socket by the configuration. ``pod_uid``: of the pod in which this runs; empty for none. ``roots``
    and ``sockets``: where distributions have kubelets and runtimes.
    """
    asked = {path: _connected(path) for path in (places.device_plugins / SOCKET, places.pod_resources)}
    kubelet = asked[places.device_plugins / SOCKET]
    writes = [path for path in (places.device_plugins, state_dir) if is_there(path)]
    read_only = [path for path in writes if os.statvfs(path).f_flag & os.ST_RDONLY]
    no_kubelet = ""
    if isinstance(kubelet, FileNotFoundError):
        no_kubelet = why_none(places.device_plugins)
    elif kubelet is not None and not isinstance(kubelet, PermissionError):  # one may serve where only this is denied
        no_kubelet = f"no kubelet answers at {places.device_plugins / SOCKET}: {kubelet.strerror or kubelet}"
    no_runtime = runtime if runtime is not None and _connected(runtime) is not None else None

    # access(2) asks the security module, too.
    denied = [path for path, error in asked.items() if isinstance(error, PermissionError)]
    denied += [path for path in writes if path not in read_only and not os.access(path, os.W_OK | os.X_OK)]
    denied += [path for path in (places.pods, DEV) if is_there(path) and not os.access(path, os.R_OK | os.X_OK)]
    return Site(
        no_kubelet=no_kubelet,
        denied=tuple(map(str, denied)),
        read_only=tuple(map(str, read_only)),
        selinux=selinux_type(_CONTEXT),
        not_its_root="" if denied else _not_its_root(places, pod_uid, served=kubelet is None),
        roots=tuple(str(root) for root in roots if root != places.pods.parent and _has_socket(root)),
        no_runtime=str(no_runtime or ""),
        runtimes=tuple(str(one) for one in sockets if no_runtime and one != no_runtime and _connected(one) is None),
    )


def _connected(path: Path) -> OSError | None:
    """Why no server can be reached there; None if one can."""
    try:
        unix.connect(path, seconds=_SECONDS).close()
    except OSError as error:
        return error
    return None


def _not_its_root(places: Places, pod_uid: str, *, served: bool) -> str:
    """The evidence that the kubelet keeps its pods elsewhere."""
    if pod_uid and is_there(places.pods) and not (places.pods / pod_uid).exists():
        return f"{places.pods} hasn't the pod {pod_uid}, in which this runs"
    if served and not places.pod_resources.exists():  # from 1.15 on a kubelet has it
        return f"there is no {places.pod_resources}, which kubelets from 1.15 on serve"
    return ""


def _has_socket(root: Path) -> bool:
    try:
        return (root / "pod-resources" / SOCKET).is_socket()
    except OSError:
        return False


def selinux_type(context: Path) -> str:
    """The SELinux type of the process with this context; empty without SELinux, whose contexts alone have colons."""
    try:
        parts = context.read_text().strip("\0\n").split(":")
    except OSError:
        return ""
    return parts[2] if len(parts) >= 4 else ""  # user:role:type:level
