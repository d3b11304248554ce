"""What is found where a gateway would run."""

import contextlib
import json
import socket
import subprocess
import sys
from dataclasses import asdict

import pytest

from dpgateway.cli.site import look, selinux_type
from dpgateway.kit.unix import Address
from dpgateway.node.directory import Places

RUN = """
import json, os, sys
from dataclasses import asdict
from pathlib import Path
from dpgateway.cli.site import look
from dpgateway.kit.unix import Address
from dpgateway.node.directory import Places
root = Path(sys.argv[1])
os.setresuid(*[int(sys.argv[2])] * 3)
print(json.dumps(asdict(look(Places.of(root / "device-plugins"), root / "state", None, "", roots=()))))
"""


@pytest.fixture
def root(short_path):
    """A kubelet's --root-dir, with sockets on which something listens."""
    with contextlib.ExitStack() as listening:
        for name in ("device-plugins", "pod-resources"):
            (short_path / name).mkdir()
            listening.enter_context(listener(short_path / name / "kubelet.sock"))
        (short_path / "pods/own").mkdir(parents=True)
        (short_path / "state").mkdir()
        yield short_path


def listener(path):
    made = socket.socket(socket.AF_UNIX)
    with Address(path) as address:
        made.bind(address.path)
    made.listen()
    return made


def seen(root, runtime=None, uid="own", **elsewhere):
    site = look(Places.of(root / "device-plugins"), root / "state", runtime, uid, **{"roots": (), **elsewhere})
    return {key: value for key, value in asdict(site).items() if value and key != "selinux"}


def test_all_is_there(root):
    assert seen(root) == {}


def test_a_directory_without_a_kubelet(root):
    kubelet = root / "device-plugins/kubelet.sock"
    kubelet.unlink()
    assert "has no kubelet.sock" in seen(root)["no_kubelet"]
    listener(kubelet).close()
    assert seen(root)["no_kubelet"] == f"no kubelet answers at {kubelet}: Connection refused"


def test_pods_of_another_kubelet(root):
    assert "hasn't the pod other" in seen(root, uid="other")["not_its_root"]
    assert seen(root, uid="") == {}


def test_a_kubelet_with_another_root(root, tmp_path):
    (root / "pod-resources/kubelet.sock").unlink()
    other = root / "k0s"
    (other / "pod-resources").mkdir(parents=True)
    with listener(other / "pod-resources/kubelet.sock"):
        found = seen(root, roots=(root, other, tmp_path))
    assert "which kubelets from 1.15 on serve" in found["not_its_root"]
    assert found["roots"] == (str(other),)


def test_a_runtime_elsewhere_or_nowhere(root):
    there, nowhere = root / "there.sock", root / "nowhere.sock"
    with listener(there):
        found = {"no_runtime": str(nowhere), "runtimes": (str(there),)}
        assert seen(root, nowhere, sockets=(nowhere, there)) == found
        assert seen(root, there, sockets=(nowhere, there)) == {}
        assert seen(root, None, sockets=(nowhere, there)) == {}
    assert seen(root, nowhere, sockets=(nowhere, there)) == {"no_runtime": str(nowhere)}


def test_a_socket_of_a_long_path(root):
    far = root / ("x" * 120)
    far.mkdir()
    with listener(far / "there.sock"):
        assert seen(root, far / "there.sock") == {}
    assert seen(root, far / "there.sock", sockets=()) == {"no_runtime": str(far / "there.sock")}


def child(root, user, *before):
    command = [*before, sys.executable, "-c", RUN, root, user]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_what_is_denied(root):
    root.chmod(0o755)
    (root / "pods").chmod(0o700)
    found = child(root, "65534")
    denied = ["device-plugins/kubelet.sock", "pod-resources/kubelet.sock", "device-plugins", "state", "pods"]
    assert (found["denied"], found["no_kubelet"]) == ([str(root / name) for name in denied], "")


def test_what_is_read_only(root):
    mount = f'mount -t tmpfs -o ro none {root}/state && exec "$@"'
    found = child(root, "0", "unshare", "--mount", "sh", "-c", mount, "sh")
    assert (found["read_only"], found["denied"]) == ([str(root / "state")], [])


@pytest.mark.parametrize(
    ("context", "found"),
    [
        ("system_u:system_r:container_t:s0:c1,c2\n", "container_t"),
        ("cri-containerd.apparmor.d (enforce)\n", ""),
        ("unconfined\0", ""),
    ],
)
def test_the_type_of_a_context(tmp_path, context, found):
    (tmp_path / "current").write_text(context)
    assert selinux_type(tmp_path / "current") == found
    assert selinux_type(tmp_path / "none") == ""
