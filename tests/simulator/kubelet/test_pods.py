from dpgateway_simulator.kubelet.ledger import DeviceLedger, Holding
from dpgateway_simulator.kubelet.pods import Pod, PodContainer, allocatable, containers, requests, short_of
from tests.simulator.rig import X

Y = "example.com/y"


def pod(name: str = "p", **numbers: int) -> Pod:
    return Pod(name, tuple(PodContainer(one, {X: number}) for one, number in numbers.items()))


def test_requests_of_a_pod() -> None:
    app, init = containers({"a": {X: 1}, "b": {X: 1}}), containers({"i": {X: 3, Y: 1}})
    assert requests(Pod("p", app, init)) == {X: 3, Y: 1}
    sidecar = containers([{"name": "s", "restartPolicy": "Always", "resources": {"limits": {X: "2"}}}])
    assert requests(Pod("p", app, sidecar)) == {X: 4}


def test_holding_pod_fits_after_restart() -> None:
    ledger = DeviceLedger(holdings={("p", "c", X): Holding("p", "c", X, {0: ["a", "b"]}, None)})
    ledger.recount()
    assert allocatable(ledger, {X: 0}, "p") == {X: 2}
    assert allocatable(ledger, {X: 0}, "other") == {X: 0}


def test_what_others_use_counts() -> None:
    short = short_of(pod("new", c=2), [pod("old", c=1)], {X: 2}, missing_is_fine=True)
    assert short == (X, f"Node didn't have enough resource: {X}, requested: 2, used: 1, capacity: 2")
    assert short_of(pod("new", c=1), [pod("old", c=1)], {X: 2}, missing_is_fine=True) is None


def test_unknown_resource_from_1_10() -> None:
    assert short_of(pod(c=1), [], {}, missing_is_fine=True) is None
    assert short_of(pod(c=1), [], {}, missing_is_fine=False) is not None
