"""Pods that run, by their cgroups: the trees that kubelets make, in both versions of cgroups."""

import os
import subprocess
from pathlib import Path

import pytest

from dpgateway.node.cgroups import PodCgroups

POD, OTHER = "0f3c1d2e-4a5b-4c6d-8e7f-0123456789ab", "ffffffff-4a5b-4c6d-8e7f-0123456789ab"
STATIC = "0f3c1d2e4a5b4c6d8e7f0123456789ab"
V1 = Path("/sys/fs/cgroup/pids")
_UNIT = POD.replace("-", "_")

WAYS = {
    "cgroupfs": f"kubepods/burstable/pod{POD}",
    "guaranteed": f"kubepods/pod{POD}",
    "systemd": f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{_UNIT}.slice",
    "systemd, guaranteed": f"kubepods.slice/kubepods-pod{_UNIT}.slice",
    "a root of its own": f"nodes/kubepods/besteffort/pod{POD}",
    "systemd, a root of its own": "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
    f"kubelet-kubepods-burstable-pod{_UNIT}.slice",
}


def tree(root, way, version, *, runs):
    """The pod's cgroup, with one of a container."""
    folder = root / ("" if version == 2 else "pids") / way
    (folder / "container").mkdir(parents=True)
    for one in (folder, folder / "container"):
        (one / "cgroup.procs").write_text("7\n" if runs and one.name == "container" else "")
        if version == 2:
            (one / "cgroup.events").write_text(f"populated {int(runs)}\nfrozen 0\n")
    return folder


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_pod_with_a_process(tmp_path, way, version, runs):
    tree(tmp_path, way, version, runs=runs)
    assert PodCgroups([tmp_path]).running({POD, OTHER}) == (frozenset([POD]) if runs else frozenset())


@pytest.mark.parametrize("uid", [STATIC, "named-by.Its_manifest"])
def test_a_static_pod_isn_t_waited_for(tmp_path, uid):
    tree(tmp_path, f"kubepods/pod{uid}", 2, runs=True)
    assert PodCgroups([tmp_path]).running({uid}) == frozenset()
    assert PodCgroups([tmp_path]).running({uid}, static=True) == frozenset([uid])


@pytest.mark.parametrize("uid", ["", ".", "..", f"../pod{POD}", f"{POD}/container"])
def test_a_uid_is_no_path(tmp_path, uid):
    tree(tmp_path, f"kubepods/pod{POD}", 2, runs=True)
    assert PodCgroups([tmp_path]).running({uid}) == frozenset()
    assert PodCgroups([tmp_path]).running({uid}, static=True) == frozenset()


@pytest.mark.parametrize("way", ["", "system.slice/crond.service", "a/b/c/d/kubepods", f"user.slice/kubepods/pod{POD}"])
def test_a_node_without_cgroups_of_pods(tmp_path, way):
    (tmp_path / way).mkdir(parents=True, exist_ok=True)
    assert PodCgroups([tmp_path]).running({POD}) is None


def test_the_node_s_come_before_the_container_s(tmp_path):
    mounted, own = tmp_path / "node", tmp_path / "own"
    tree(own, f"kubepods/pod{POD}", 2, runs=True)
    roots = PodCgroups([mounted, own])
    assert roots.running({POD}) == frozenset([POD])
    tree(mounted, f"kubepods/pod{POD}", 2, runs=False)
    assert roots.running({POD}) == frozenset()


def test_one_of_several_controllers(tmp_path):
    tree(tmp_path / "cpu", f"kubepods/pod{POD}", 2, runs=False)
    (tmp_path / "unified").mkdir()
    tree(tmp_path, f"kubepods/pod{POD}", 1, runs=True)
    assert PodCgroups([tmp_path]).running({POD}) == frozenset([POD])


@pytest.mark.parametrize(("version", "file"), [(1, "container/cgroup.procs"), (2, "cgroup.events")])
def test_what_can_t_be_read_may_run(tmp_path, version, file):
    folder = tree(tmp_path, f"kubepods/pod{POD}", version, runs=False)
    (folder / file).unlink()
    (folder / file).symlink_to((folder / file).name)
    assert PodCgroups([tmp_path]).running({POD}) == frozenset([POD])


def test_a_cgroup_that_was_removed_meanwhile(tmp_path):
    """A kubelet removes a pod's while it is read."""
    folder = tree(tmp_path, f"kubepods/pod{POD}", 1, runs=False)
    (folder / "container" / "cgroup.procs").unlink()
    (folder / "container" / "cgroup.procs").symlink_to("nowhere")
    assert PodCgroups([tmp_path]).running({POD}) == frozenset()


@pytest.fixture(params=[1, 2] if V1.is_dir() else [2])
def kernel(request, tmp_path):
    """A real cgroup of a node, in the hierarchy of this version."""
    if request.param == 2:
        subprocess.run(["mount", "-t", "cgroup2", "cgroup2", tmp_path], check=True)
        root = tmp_path
    else:
        root = V1
    node = root / f"dpgateway-{os.getpid()}"
    pod = node / "kubepods" / f"pod{POD}" / "container"
    pod.mkdir(parents=True)
    yield node, pod
    for folder in (pod, *pod.parents[:3]):
        folder.rmdir()
    if request.param == 2:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes cgroups")
def test_the_kernel_s(kernel):
    node, pod = kernel
    cgroups = PodCgroups([node])
    assert cgroups.running({POD}) == frozenset()
    with subprocess.Popen(["sleep", "60"]) as process:
        (pod / "cgroup.procs").write_text(str(process.pid))
        assert cgroups.running({POD}) == frozenset([POD])
        process.kill()
    assert cgroups.running({POD}) == frozenset()
