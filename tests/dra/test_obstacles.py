"""What a Node says of its kubelet and runtime, and what that means for DRA."""

import pytest

from dpgateway.dra.obstacles import obstacle


@pytest.mark.parametrize(
    ("kubelet", "runtime", "cdi", "found"),
    [
        ("v1.36.0", "containerd://2.1.4", None, ""),
        ("v1.37.2-gke.100", "containerd://1.7.2", None, ""),
        ("v1.40.0+k3s1", "cri-o://1.40.0", None, ""),
        ("v1.36.0", "containerd://1.7.1", None, "containerd 1.7.1 of node n1 drops CDI names"),
        ("v1.36.0", "containerd://1.6.39-k3s1", None, "containerd 1.6.39-k3s1 of node n1 drops CDI names"),
        ("v1.36.0", "cri-o://1.22.5", None, "cri-o 1.22.5 of node n1 drops CDI names"),
        ("v1.35.9-eks-1", "containerd://2.1.4", None, "kubelet v1.35.9-eks-1 of node n1 starts pods"),
        ("", "", None, ""),
        ("v1.36.0", "other://1", None, ""),
        # whether the runtime has CDI switched on
        ("v1.36.0", "containerd://1.7.24", False, "containerd 1.7.24 of node n1 has CDI switched off"),
        ("v1.36.0", "containerd://2.1.4", False, "containerd 2.1.4 of node n1 has CDI switched off"),
        ("v1.36.0", "containerd://1.7.24", True, ""),
        ("v1.36.0", "containerd://1.7.24", None, ""),
        ("v1.36.0", "containerd://1.7.1", False, "containerd 1.7.1 of node n1 drops CDI names"),
    ],
)
def test_old_kubelets_and_runtimes_are_named(kubelet: str, runtime: str, *, cdi: bool | None, found: str) -> None:
    info = {"kubeletVersion": kubelet, "containerRuntimeVersion": runtime}
    said = obstacle({"metadata": {"name": "n1"}, "status": {"nodeInfo": info}}, cdi)
    assert said.startswith(found)
    assert bool(said) is bool(found)


def test_a_node_without_a_status_says_nothing() -> None:
    assert obstacle({"metadata": {"name": "n1"}}) == ""
