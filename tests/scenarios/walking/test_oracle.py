"""The walk's oracle says of planted violations what is wrong; and its runtime finds what containerd would."""

from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.walking.hardware import Gone, Hardware
from tests.scenarios.walking.oracle import GivenTwice, Grant, Oracle, Violation
from tests.scenarios.walking.runtime import Runtime


def grant(*things: str, allowed: int = 1, files: tuple[str, ...] = ()) -> Grant:
    return Grant("walk.example/x", frozenset(), frozenset(things), frozenset(files), allowed)


@pytest.fixture
def oracle() -> Oracle:
    oracle = Oracle()
    oracle.given("p1", grant("a", files=("f1",)))
    oracle.started("p1", {"188:0": "a"})
    return oracle


def test_one_number_in_two_containers(oracle: Oracle) -> None:
    oracle.given("p2", grant("a"))
    with pytest.raises(Violation, match=r"never two: 188:0 is in 2 containers, 1 allowed"):
        oracle.started("p2", {"188:0": "a"})


def test_one_number_in_two_containers_after_a_restart(oracle: Oracle) -> None:
    oracle.given("p2", grant("b"))
    oracle.started("p2", {"188:1": "b"})
    with pytest.raises(Violation, match="never two"):
        oracle.started("p2", {"188:0": "b"})


def test_other_hardware_after_a_restart(oracle: Oracle) -> None:
    oracle.down("p1")
    with pytest.raises(Violation, match=r"its own, or nothing: p1 was started again and is .* given a, has 188:0=b"):
        oracle.started("p1", {"188:0": "b"})


def test_nothing_instead_of_what_was_given(oracle: Oracle) -> None:
    with pytest.raises(Violation, match="its own, or nothing"):
        oracle.started("p1", {})
    with pytest.raises(Violation, match="p2 was given no device"):
        oracle.given("p2", grant())


def test_what_allocate_made_is_removed(oracle: Oracle) -> None:
    oracle.files(["f1", "f2"])
    with pytest.raises(Violation, match="untouched: f1 is gone, while p1 lives"):
        oracle.files(["f2"])


def test_a_share_more_than_there_are(oracle: Oracle) -> None:
    for pod in ("p2", "p3"):
        oracle.given(pod, grant("c", allowed=2))
        oracle.started(pod, {"241:0": "c"})
    oracle.given("p4", grant("c", allowed=2))
    with pytest.raises(Violation, match="241:0 is in 3 containers, 2 allowed"):
        oracle.started("p4", {"241:0": "c"})


def test_an_id_that_the_kubelet_gave_twice(oracle: Oracle) -> None:
    """It is told apart, because no plugin can help it."""
    one = Grant("walk.example/x", frozenset({"i"}), frozenset({"c"}), frozenset(), 1)
    oracle.given("p2", one)
    with pytest.raises(GivenTwice, match=r"the kubelet gave i of walk.example/x to p2 and p3"):
        oracle.given("p3", one)


def test_what_is_right_is_no_violation(oracle: Oracle) -> None:
    """Its own under another number; what another one had that ended; a share that is kept when there are fewer."""
    oracle.down("p1")
    oracle.started("p1", {"188:1": "a"})
    oracle.given("p2", grant("b"))
    oracle.started("p2", {"188:0": "b"})
    oracle.ended("p2")
    for pod, allowed in (("p3", 2), ("p4", 2)):
        oracle.given(pod, grant("b", allowed=allowed))
        oracle.started(pod, {"188:0": "b"})
    oracle.down("p3")
    oracle.started("p3", {"188:0": "b"})
    oracle.ended("p1")
    oracle.files([])


@pytest.fixture
def hardware(tmp_path: Path) -> Any:
    hardware = Hardware(tmp_path / "host")
    yield hardware
    hardware.close()


def test_a_runtime_finds_what_is_there_now(hardware: Hardware, tmp_path: Path) -> None:
    """A device plugin's path may be a link, a CDI spec's may not."""
    for index, serial in enumerate(("A", "B")):
        hardware.plug(serial, index)
    link = tmp_path / "link"
    link.symlink_to(hardware.dev / "ttyUSB0")
    runtime = Runtime(tmp_path, hardware)
    options = {"devices": [{"host_path": str(link)}], "cdi_devices": []}
    assert runtime.nodes(options) == {"188:0": "A"}
    for serial in ("A", "B"):
        hardware.unplug(serial)
    with pytest.raises(Gone):
        runtime.nodes(options)
    hardware.plug("B", 0)
    assert runtime.nodes(options) == {"188:0": "B"}
    named = {"devices": [], "cdi_devices": ["walk.example/x=1"]}
    with pytest.raises(Gone, match="unresolvable"):
        runtime.nodes(named)
    spec = '{"kind": "walk.example/x", "devices": [{"name": "1", "containerEdits": {"deviceNodes": [{"path": "%s"}]}}]}'
    (runtime.cdi / "x.json").write_text(spec % link)
    with pytest.raises(Gone):
        runtime.nodes(named)
    (runtime.cdi / "x.json").write_text(spec % (hardware.dev / "ttyUSB0"))
    assert runtime.nodes(named) == {"188:0": "B"}
