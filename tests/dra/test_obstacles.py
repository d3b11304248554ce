"""What a Node says of its kubelet and runtime, and what that means for DRA."""

import pytest

from dpgateway.dra.obstacles import obstacle


@pytest.mark.parametrize(
    ("kubelet", "runtime", "found"),
    [
        ("v1.36.0", "containerd://2.1.4", ""),
        ("v1.37.2-gke.100", "containerd://1.7.2", ""),
        ("v1.40.0+k3s1", "cri-o://1.40.0", ""),
        ("v1.36.0", "containerd://1.7.1", "containerd 1.7.1 of node n1 drops CDI names"),
        ("v1.36.0", "containerd://1.6.39-k3s1", "containerd 1.6.39-k3s1 of node n1 drops CDI names"),
        ("v1.36.0", "cri-o://1.22.5", "cri-o 1.22.5 of node n1 drops CDI names"),
        ("v1.35.9-eks-1", "containerd://2.1.4", "kubelet v1.35.9-eks-1 of node n1 starts pods"),
        ("", "", ""),
        ("v1.36.0", "other://1", ""),
    ],
)
def test_old_kubelets_and_runtimes_are_named(kubelet: str, runtime: str, found: str) -> None:
    info = {"kubeletVersion": kubelet, "containerRuntimeVersion": runtime}
    said = obstacle({"metadata": {"name": "n1"}, "status": {"nodeInfo": info}})
    assert said.startswith(found)
    assert bool(said) is bool(found)


@pytest.mark.parametrize(
    ("runtime", "cdi", "found"),
    [
        ("containerd://1.7.24", False, "containerd 1.7.24 of node n1 has CDI switched off"),
        ("containerd://2.1.4", False, "containerd 2.1.4 of node n1 has CDI switched off"),
        ("containerd://1.7.24", True, ""),
        ("containerd://1.7.24", None, ""),
        ("containerd://1.7.1", False, "containerd 1.7.1 of node n1 drops CDI names"),
    ],
)
def test_a_runtime_may_have_cdi_switched_off(runtime: str, *, cdi: bool | None, found: str) -> None:
    info = {"kubeletVersion": "v1.36.0", "containerRuntimeVersion": runtime}
    said = obstacle({"metadata": {"name": "n1"}, "status": {"nodeInfo": info}}, cdi)
    assert said.startswith(found)
    assert bool(said) is bool(found)


def test_a_node_without_a_status_says_nothing() -> None:
    assert obstacle({"metadata": {"name": "n1"}}) == ""
