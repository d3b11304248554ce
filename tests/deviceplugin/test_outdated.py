"""Whether an answer that is repeated still means what it meant: a table, and one property."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgateway.deviceplugin.api import Answer
from dpgateway.deviceplugin.outdated import answer, outdated, same_hardware
from dpgateway.model import Allocation, DeviceNode, Mount

USB0, USB1 = {"/dev/zigbee": "/dev/ttyUSB0"}, {"/dev/zigbee": "/dev/ttyUSB1"}


@pytest.mark.parametrize(
    ("given", "now", "said"),
    [
        (Answer(USB0), Answer(USB0), None),
        (Answer(USB0), Answer(USB1), ("/dev/ttyUSB0", "/dev/ttyUSB1")),
        (Answer(USB0), Answer({"/dev/serial": "/dev/ttyUSB0"}), None),  # the configuration calls it otherwise now
        (Answer(USB0), Answer({"/dev/serial": "/dev/ttyUSB1"}), ("/dev/ttyUSB0", "/dev/ttyUSB1")),
        (Answer(USB0), Answer(), ("/dev/ttyUSB0", "nothing")),
        (Answer(USB0), Answer({**USB0, "/dev/new": "/dev/ttyUSB9"}), None),  # less than today, but its own
        (Answer(mounts={"/m": "/a"}), Answer(mounts={"/m": "/b"}), ("/a", "/b")),
        (Answer(mounts={"/m": "/a"}), Answer(), None),  # the configuration's, perhaps
        (Answer(cdi_devices=("v/c=0",)), Answer(cdi_devices=("v/c=0",)), None),
        (Answer(cdi_devices=("v/c=0",)), Answer(cdi_devices=("v/c=1",)), ("the CDI device v/c=0", "v/c=1")),
        (Answer(env={"INDEX": "0"}), Answer(env={"INDEX": "1"}), ("env INDEX=0", "env INDEX=1")),
        (Answer(annotations={"i": "0"}), Answer(annotations={"i": "1"}), ("annotation i=0", "annotation i=1")),
        (Answer(env={"INDEX": "0"}), Answer(env={"OTHER": "1"}), None),
        (Answer(USB0, env={"TOKEN": "0"}), Answer(USB0, env={"TOKEN": "1"}), None),
        (Answer(), Answer(USB1), None),
    ],
)
def test_what_means_something_else(given, now, said):
    expected = f"this container was given {said[0]}, and it is {said[1]} now" if said else ""
    assert outdated(given, now, now) == expected


@pytest.mark.parametrize("field", ["mounts", "env"])
def test_configured_values_are_no_difference(field):
    of: Any = Answer
    given, now, complete = (of(**{field: {"/m": text}}) for text in ("mine yesterday", "the driver's", "mine"))
    assert outdated(given, now, complete) == ""
    assert outdated(given, now, now)


def test_an_allocation_as_a_kubelet_keeps_it():
    full = Allocation({"E": "1"}, (DeviceNode("/dev/a", "/dev/b"),), (Mount("/m", "/n"),), {"k": "v"}, ("v.e/c=a",))
    assert answer(full) == Answer({"/dev/b": "/dev/a"}, {"/n": "/m"}, ("v.e/c=a",), {"E": "1"}, {"k": "v"})


def test_the_same_nodes_at_other_places():
    given, swapped = Answer({"/dev/0": "/dev/a", "/dev/1": "/dev/b"}), Answer({"/dev/0": "/dev/b", "/dev/1": "/dev/a"})
    assert outdated(given, swapped, swapped)
    assert same_hardware(given, swapped)
    assert not same_hardware(given, Answer({"/dev/0": "/dev/a", "/dev/1": "/dev/c"}))


def test_the_same_words_in_another_order():
    given, other = Answer(env={"PCI": "02.1,02.0", "N": "2"}), Answer(env={"PCI": "02.0,02.1", "MORE": "x"})
    assert outdated(given, other, other)
    assert same_hardware(given, other)
    assert not same_hardware(given, Answer(env={"PCI": "02.0,02.2"}))
    assert not same_hardware(Answer(annotations={"a": "1 2"}), Answer(annotations={"a": "1 3"}))


NODES = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))


@given(NODES, NODES)
def test_a_node_that_the_ids_do_not_give_now(was, now):
    if not outdated(Answer(was), Answer(now), Answer(now)):
        assert set(was.values()) <= set(now.values())
        assert all(now.get(place, path) == path for place, path in was.items())
