import itertools
from dataclasses import dataclass
from enum import IntEnum, StrEnum

import pytest

from dpgateway import Allocation, Busy, Device, DeviceNode, DeviceUnavailable, DriverError, Health, Mount
from dpgateway.drivers import answers
from dpgateway.errors import DriverFault, DriverTimeout

A, B, C = Device("a"), Device("b"), Device("c")


@pytest.mark.parametrize(
    "answer", [[A, B], (A, B), {"x": A, "y": B}.values(), iter([A, B])], ids=["list", "tuple", "view", "iterator"]
)
def test_devices_may_come_in_any_iterable(answer):
    assert answers.devices(answer) == (A, B)


def test_no_devices_are_an_answer():
    assert answers.devices(iter(())) == ()


@pytest.mark.parametrize("answer", [None, 3, A, "ab", b"ab"], ids=repr)
def test_devices_must_be_iterable(answer):
    with pytest.raises(DriverFault, match=r"devices\(\) returned .*, expected devices"):
        answers.devices(answer)


@pytest.mark.parametrize("wrong", ["a", None, {"id": "a"}], ids=repr)
def test_every_item_must_be_a_device(wrong):
    with pytest.raises(DriverFault, match=r"among its devices, expected a Device"):
        answers.devices([A, wrong])


def test_a_fault_that_lasts_keeps_its_text():
    """An address in it would have each retry logged."""
    with pytest.raises(DriverFault) as fault:
        answers.devices([object()])
    assert str(fault.value) == "devices() returned <object object> among its devices, expected a Device"


class Names(StrEnum):
    A = "a"
    HOT = "hot"
    PATH = "/a"
    PERMISSIONS = "r"


class Board(Device):
    """A device of a driver's own class, which says at each moment how the board is."""

    def __init__(self, values):  # and not the dataclass's, nor its __post_init__
        object.__setattr__(self, "values", values)

    id = property(lambda self: self.values["id"])
    health = property(lambda self: self.values["health"])
    numa_nodes = property(lambda self: self.values["numa_nodes"])


def board(id_="a", health=A.health, numa_nodes=()):
    return Board({"id": id_, "health": health, "numa_nodes": numa_nodes})


def test_own_devices_are_copied():
    listed = board("a", Health.unhealthy("no power"), (1,)), board("b")
    first, second = answers.devices(listed)
    listed[0].values["health"] = Health.healthy()
    assert (first.id, first.health.reason, first.numa_nodes) == ("a", "no power", (1,))
    assert first != second
    assert answers.own((second, A)) == (listed[1], A)


def test_the_very_same_device_is_copied_once():
    """A thousand devices, of which one has changed, are a thousand values that are known."""
    same, plain = board("a"), Device("c")
    before = answers.devices([same, board("b"), plain])
    after = answers.devices([same, board("b"), plain], before)
    assert [one is other for one, other in zip(before, after, strict=True)] == [True, False, True]
    assert answers.own(after)[0] is same


def test_plain_devices_pass_as_they_are():
    first, second = answers.devices([A, B])
    assert (first, second) == (A, B)
    assert first is A


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"id_": ""}, "expected a non-empty string"),
        ({"id_": "a::1"}, "how shares are named"),
        ({"id_": None}, "expected a string"),
        ({"numa_nodes": (-1,)}, "expected none, or nodes from 0"),
        ({"health": True}, "expected health to be a Health"),
    ],
)
def test_own_devices_are_validated(wrong, text):
    with pytest.raises((ValueError, TypeError), match=text):
        answers.devices([board(**wrong)])


def test_what_is_in_a_device_is_plain():
    class Node(IntEnum):
        ZERO = 0
        ONE = 1

    class Odd(Health):
        pass

    (device,) = answers.devices([Device(Names.A, Odd(Names.HOT), (Node.ONE, Node.ZERO))])
    kinds = [type(device.id), type(device.health), type(device.health.reason), *map(type, device.numa_nodes)]
    assert kinds == [str, Health, str, int, int]
    assert device == Device("a", Health.unhealthy("hot"), (0, 1))


def test_what_is_in_an_allocation_is_plain():
    class Node(DeviceNode):
        pass

    class Bound(Mount):
        pass

    class Given(Allocation):
        pass

    path = Names.PATH
    given = Given({path: path}, (Node(path, path, Names.PERMISSIONS),), (Bound(path, "/b"),), {path: path})
    found = answers.allocation(given)
    (node,), (mount,) = found.device_nodes, found.mounts
    texts = [*found.env, *found.env.values(), *found.annotations, node.host_path, node.container_path]
    texts += [node.permissions, mount.host_path, mount.container_path]
    assert set(map(type, texts)) == {str}
    assert [type(found), type(node), type(mount)] == [Allocation, DeviceNode, Mount]
    expected = Allocation({"/a": "/a"}, (DeviceNode("/a", "/a", "r"),), (Mount("/a", "/b"),), {"/a": "/a"})
    assert found == expected


def test_an_id_listed_twice_is_refused_by_name():
    with pytest.raises(DriverFault, match="listed the id 'a' twice"):
        answers.devices([A, B, Device("a", numa_nodes=(1,))])


def test_a_list_may_have_200000_devices_and_no_more():
    many = [Device(f"d{number}") for number in range(200_001)]
    assert len(answers.devices(many[1:])) == 200_000
    with pytest.raises(DriverFault, match="more than 200000 devices"):
        answers.devices(many)


def test_a_list_without_end_is_refused():
    with pytest.raises(DriverFault, match="more than 200000 devices"):
        answers.devices(Device(f"d{number}") for number in itertools.count())


@pytest.mark.parametrize("answer", [None, {}, [Allocation()], Allocation], ids=repr)
def test_only_an_allocation_is_an_allocation(answer):
    with pytest.raises(DriverFault, match="expected an Allocation"):
        answers.allocation(answer)


def test_an_allocation_passes_as_it_is():
    allocation = Allocation(env={"A": "1"})
    assert answers.allocation(allocation) is allocation


def test_prefer_returns_the_requested_number():
    assert answers.preferred(iter([B, A]), (A, B, C), 2) == (B, A)
    assert answers.preferred([], (A,), 0) == ()


@pytest.mark.parametrize("answer", [[A], [A, B, C], itertools.cycle([A])], ids=["fewer", "more", "without end"])
def test_prefer_with_another_number_is_refused(answer):
    with pytest.raises(DriverFault, match=r"prefer\(\) returned"):
        answers.preferred(answer, (A, B, C), 2)


def test_preferred_own_devices_are_the_listed_ones():
    available = answers.devices([board("a"), board("b")])
    (chosen,) = answers.preferred(answers.own(available[1:]), available, 1)
    assert chosen is available[1]


def test_preferred_devices_must_be_available():
    with pytest.raises(DriverFault, match="'c', which isn't available"):
        answers.preferred([A, C], (A, B), 2)


def test_preferred_devices_are_counted():
    assert answers.preferred([A, A], (A, A, B), 2) == (A, A)
    with pytest.raises(DriverFault, match="more often than it is"):
        answers.preferred([B, B], (A, A, B), 2)


@pytest.mark.parametrize("error", [DriverError("x"), DeviceUnavailable("x"), Busy("x")], ids=repr)
def test_contract_errors_are_no_fault(error):
    assert answers.fault("allocate", error) is error


def test_a_fault_names_method_and_error():
    assert str(answers.fault("allocate", KeyError("x"))) == "allocate() raised KeyError: 'x'"


def test_an_error_with_a_broken_str():
    class Silent(Exception):
        def __str__(self):
            raise ZeroDivisionError

    fault = answers.fault("devices", Silent())
    assert isinstance(fault, DriverFault)
    assert str(fault) == "devices() raised Silent, whose text can't be had: __str__ raised ZeroDivisionError"


@pytest.mark.parametrize("kind", [Busy, DriverError, DriverTimeout])
def test_error_texts_are_cut_and_escaped(kind):
    def call():
        raise kind("\0\ud800" + "x" * 5000)

    with pytest.raises(kind) as caught:
        answers.ask("devices", call)
    assert str(caught.value) == r"\x00\ud800" + "x" * 3998 + "... (5002 characters)"


def test_long_tracebacks_are_cut():
    def call():
        raise ValueError("\0" + "x" * 100_000)

    with pytest.raises(
        DriverFault, match=r"^devices\(\) raised ValueError: \\x00x+\.\.\. \(100013 characters\)$"
    ) as caught:
        answers.ask("devices", call)
    trace = str(caught.value.trace)
    assert trace.startswith("Traceback")
    assert 50_000 < len(trace) < 50_100


def test_identical_devices_keep_the_list():
    before = answers.devices([A, B])
    assert answers.devices([A, B], before) is before
    assert answers.devices([A, wet := Device("b", Health.unhealthy("wet"))], before) == (A, wet)
    assert answers.devices([B, A], before) == (B, A)
    assert answers.devices([A], before) == (A,)


def test_equal_devices_keep_the_list():
    """A naive driver makes all its values at each look; whoever gets the list sees that one of them has changed."""

    def made(*ids, **others):
        known = {"attributes": {"vendor": "0x1", "ports": 4}, "hardware": ("pci 1",), "numa_nodes": (1,)}
        return [Device(id_, **{**known, **others}) for id_ in ids]

    before = answers.devices(made("a", "b", "c"))
    assert answers.devices(made("a", "b", "c"), before) is before
    for others in (
        {"health": Health.unhealthy("wet")},
        {"numa_nodes": (2,)},
        {"attributes": {"vendor": "0x1", "ports": 5}},
        {"hardware": ("pci 2",)},
    ):
        (other,) = made("b", **others)
        after = answers.devices([*made("a"), other, *made("c")], before)
        assert [one is was for one, was in zip(after, before, strict=True)] == [True, False, True]
        assert after[1] is other
    for ids in ("cab", "abcd", "bc", "xbc"):
        after = answers.devices(made(*ids), before)
        assert "".join(one.id for one in after) == ids
        assert all(any(one is was for was in before) for one in after if one.id in "abc")
    with pytest.raises(DriverFault, match="'a' twice"):
        answers.devices(made("a", "b", "a"), before)


@dataclass(frozen=True, slots=True)
class Port(Device):
    """A driver's own class that computes nothing."""

    wired: str = ""


def test_the_driver_gets_its_newest_objects():
    """Equal to the gateway, and not to the driver."""
    before = answers.devices([Port("a", wired="red"), same := Port("b")])
    after = answers.devices([blue := Port("a", wired="blue"), same], before)
    assert answers.own(after)[0] is blue
    assert after[1] is before[1]
    assert answers.devices(answers.own(after), after) is after
    plain = answers.devices([Device("a"), same], after)
    assert answers.own(plain) == (Device("a"), same)
    assert type(plain[0]) is Device


@pytest.mark.parametrize(("wrong", "text"), [("b", "expected a Device"), (None, "expected a Device"), (A, "'a' twice")])
def test_replaced_devices_are_checked(wrong, text):
    before = answers.devices([A, B])
    with pytest.raises(DriverFault, match=text):
        answers.devices([A, wrong], before)


def test_a_computed_health_is_read_again():
    """A driver may list the same objects each time, whose class computes what they say."""

    class Board(Device):
        temperature = 40

        @property
        def health(self):
            return Health.unhealthy("too hot") if self.temperature > 90 else Health.healthy()

        def __init__(self):
            for name, value in {"id": "board-0", "numa_nodes": ()}.items():
                object.__setattr__(self, name, value)

    board = Board()
    (first,) = before = answers.devices([board])
    assert first.health.ok
    Board.temperature = 95
    (second,) = answers.devices([board], before)
    assert second.health.reason == "too hot"
    assert answers.own([second]) == (board,)
