"""A cluster of its own for the front for DRA: the gateway runs on its nodes as a process, which starts sooner than the
image, and needs none.
"""

from collections.abc import Iterator

import pytest

from tests.cluster.dra.node import CLASSES, COUNTS, DraNode, account, device_class, pod
from tests.cluster.machine.cluster import Cluster

SYSTEM_PODS = "/api/v1/namespaces/kube-system/pods"
NODES = {"new": ("1.37", True), "first": ("1.36", True)}
"""Kubelets that know extended resources by DRA: 1.36 was the first."""


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    made = Cluster(NODES)
    made.up()
    yield made
    made.down()


@pytest.fixture(scope="package")
def nodes(cluster: Cluster) -> dict[str, DraNode]:
    """The nodes, and a gateway on each; each resource has a class."""
    api, token = cluster.control.api, account(cluster)
    for resource in COUNTS:
        api("POST", CLASSES, device_class(resource))
    found = {name: DraNode(cluster, name, token) for name in cluster.nodes}
    # As on each node there is always a pod: a gateway with a new state_dir waits for 30 s where the kubelet has none.
    for name in found:
        cluster.control.api("POST", SYSTEM_PODS, pod(name, name, automountServiceAccountToken=False))
    for name, one in found.items():
        cluster.wait_for_pod(name, "kube-system")
        one.prepare()
        one.start()
    return found


@pytest.fixture(params=NODES, ids=[release for release, _ in NODES.values()])
def dra(nodes: dict[str, DraNode], request: pytest.FixtureRequest) -> Iterator[DraNode]:
    """A node whose gateway has published all devices. The nodes take turns, so that pods end on one meanwhile."""
    one = nodes[request.param]
    one.ready()
    yield one
    one.restore()


@pytest.fixture
def both(nodes: dict[str, DraNode]) -> Iterator[list[DraNode]]:
    """Both nodes, for what takes a kubelet long."""
    for one in nodes.values():
        one.ready()
    yield list(nodes.values())
    gone: set[str] = set()
    for one in nodes.values():
        gone = one.restore(gone)
