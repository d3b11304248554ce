"""Slices wanted against slices seen, on a server that holds objects and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dpgateway import Device
from dpgateway.dra.slices.changes import Identity, SliceChanges, changes
from dpgateway.dra.slices.layout import MOST_DEVICES, Content, contents
from dpgateway.dra.slices.offered import Offered, pool

US = Identity("dra.example.com", "n1", "uid-1", "n1/example.com/serial")


def test_shares_are_written_as_the_server_does() -> None:
    """Another text would be written again and again."""
    said = [pool([Offered(Device("a"), "r", "a", frozenset(), "", count)], US.driver, {}) for count in (2, 1000)]
    assert [one.devices[0]["capacity"]["shares"]["value"] for one in said] == ["2", "1k"]  # type: ignore[index]


class Server:
    """Slices by name, as the API server keeps them; each step is checked as the scheduler would read the pool."""

    def __init__(self) -> None:
        self.slices: dict[str, dict[str, Any]] = {}
        self._number = itertools.count(1)

    @property
    def seen(self) -> list[dict[str, Any]]:
        return list(self.slices.values())

    def apply(self, todo: SliceChanges) -> None:
        for one in todo.delete:
            del self.slices[one["metadata"]["name"]]
            self.check()
        for one in todo.update:
            name = one["metadata"]["name"]
            assert self.slices[name]["metadata"]["resourceVersion"] == one["metadata"]["resourceVersion"]
            fixed = ("driver", "nodeName")
            assert all(self.slices[name]["spec"][key] == one["spec"][key] for key in fixed)
            self.put(name, one)
            self.check()
        for one in todo.create:
            self.put(one["metadata"]["generateName"] + "abcde", one)
            self.check()

    def put(self, name: str, one: Mapping[str, Any]) -> None:
        metadata = {**one["metadata"], "name": name, "uid": f"u-{name}", "resourceVersion": str(next(self._number))}
        spec = dict(one["spec"])
        if spec.get("devices") == []:
            del spec["devices"]  # omitempty
        if "devices" in spec:
            spec["devices"] = [stamped(device) for device in spec["devices"]]
        self.slices[name] = {**one, "metadata": metadata, "spec": spec}

    def devices(self) -> list[str] | None:
        """As the scheduler reads the pool: None while it is incomplete."""
        newest = max((one["spec"]["pool"]["generation"] for one in self.seen), default=0)
        now = [one["spec"] for one in self.seen if one["spec"]["pool"]["generation"] == newest]
        if not now or {spec["pool"]["resourceSliceCount"] for spec in now} != {len(now)}:
            return None
        return [device["name"] for spec in now for device in spec.get("devices", ())]

    def check(self) -> None:
        found = self.devices()
        assert found is None or len(found) == len(set(found)), "a device twice in a complete pool is an invalid pool"


def stamped(device: Mapping[str, Any]) -> Mapping[str, Any]:
    """As the server keeps it: with the time of each taint."""
    if "taints" not in device:
        return device
    return {**device, "taints": [{**taint, "timeAdded": "2026-01-01T00:00:00Z"} for taint in device["taints"]]}


def wanted(*names: str, unhealthy: str = "") -> tuple[Content, ...]:
    offered = [Offered(Device(name), "example.com/serial", name, frozenset({name})) for name in names]
    marked = [replace(one, unhealthy="dead") if one.device.id == unhealthy else one for one in offered]
    return contents(pool(marked, US.driver, {}))


def many(count: int) -> tuple[str, ...]:
    return tuple(f"d{n:03}" for n in range(count))


def test_the_first_slices_are_created() -> None:
    server = Server()
    server.apply(changes(wanted(*many(130)), server.seen, US))
    assert sorted(server.slices) == [f"{n:04}-n1-dra.example.com-abcde" for n in range(3)]
    assert server.devices() == list(many(130))


def test_a_name_is_not_cut_short_at_a_dot() -> None:
    node = "ip-10-0-112-134.ap-northeast-1.compute.internal"
    todo = changes(wanted("a"), (), US._replace(node=node))
    assert todo.create[0]["metadata"]["generateName"] == f"0000-{node}-dra-"


def test_what_is_right_is_left_alone() -> None:
    server = Server()
    server.apply(changes(wanted("a", "b", unhealthy="a"), server.seen, US))
    assert changes(wanted("a", "b", unhealthy="a"), server.seen, US) == SliceChanges()


def test_an_empty_pool_has_one_slice() -> None:
    server = Server()
    server.apply(changes(wanted(), server.seen, US))
    assert server.devices() == []
    assert changes(wanted(), server.seen, US) == SliceChanges()


def test_one_changed_slice_keeps_its_generation() -> None:
    server = Server()
    server.apply(changes(wanted(*many(130)), server.seen, US))
    todo = changes(wanted(*many(130), unhealthy="d070"), server.seen, US)
    assert [len(some) for some in todo] == [0, 1, 0]
    assert todo.update[0]["spec"]["pool"]["generation"] == 1


def test_a_longer_pool_gets_another_generation() -> None:
    server = Server()
    server.apply(changes(wanted(*many(MOST_DEVICES)), server.seen, US))
    todo = changes(wanted(*many(MOST_DEVICES + 1)), server.seen, US)
    assert [len(some) for some in todo] == [0, 1, 1]
    assert {one["spec"]["pool"]["generation"] for some in todo for one in some} == {2}


def test_slices_of_another_node_uid_are_made_anew() -> None:
    server = Server()
    server.apply(changes(wanted("a"), server.seen, US))
    todo = changes(wanted("a"), server.seen, US._replace(node_uid="uid-2"))
    assert [len(some) for some in todo] == [1, 0, 1]


def test_a_stranger_in_the_pool_is_removed() -> None:
    server = Server()
    server.apply(changes(wanted("a"), server.seen, US))
    server.put("by-hand", server.seen[0])
    server.apply(changes(wanted("a"), server.seen, US))
    assert list(server.slices) == ["0000-n1-dra.example.com-abcde"]


@given(st.lists(st.tuples(st.integers(0, 200), st.sampled_from(["", "d001", "d100"])), max_size=6), st.randoms())
def test_every_history_ends_in_what_is_wanted(history: list[tuple[int, str]], random: Any) -> None:
    server = Server()
    for count, unhealthy in history:
        say = wanted(*many(count), unhealthy=unhealthy)
        todo = changes(say, server.seen, US)
        # A gateway that is killed leaves the rest undone; its successor begins with what is there.
        done = random.randint(0, sum(map(len, todo)))
        left = iter(range(done))
        server.apply(SliceChanges(*(tuple(one for one in some if next(left, None) is not None) for some in todo)))
        server.apply(changes(say, server.seen, US))
        assert server.devices() == list(many(count))
        assert changes(say, server.seen, US) == SliceChanges()
