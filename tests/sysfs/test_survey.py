"""A survey with a driver of five lines: devices, their groups and health, and what a second look reads."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from dpgateway.sysfs import (
    ChangedError,
    ChangedPlaces,
    FollowedSurvey,
    FoundDevice,
    GroupOption,
    Kind,
    Look,
    Part,
    Parts,
    Roots,
    Selection,
    Survey,
    Test,
    Uevent,
)
from dpgateway.testing import FakeTree, Recorder

BUS = "devices/pci0000:3a"
NICS = (Kind("net", attrs={"vendor": Test(("0x8086",))}),)


@dataclass(frozen=True)
class Nic:
    id: str
    reason: str | None
    numa_nodes: tuple[int, ...]
    hardware: tuple[str, ...] | None
    attributes: dict[str, str]
    parts: tuple[Part, ...]


@pytest.fixture
def made():
    """The ids of the devices that were made, in order."""
    return []


@pytest.fixture
def survey(roots, made):
    def survey(match=NICS, held=tuple, **options):
        def maker(look):
            def nic(found):
                if " " in found.id:
                    raise ValueError("id: expected no blank")
                made.append(found.id)
                return Nic(found.id, found.reason, found.numa_nodes, found.hardware(), found.attributes, found.parts)

            return nic

        return Survey(Selection(match, roots=roots, **options), maker, held)

    return survey


@pytest.fixture
def plug(tree):
    def plug(function, name, **attributes):
        here = f"/sys/{BUS}/0000:3b:00.{function}"
        for path, value in {"vendor": "0x8086", "numa_node": "1", **attributes}.items():
            tree.write(f"{here}/{path} = {value}")
        tree.write(f"""
            {here}/subsystem -> /sys/bus/pci
            {here}/net/{name}/subsystem -> /sys/class/net
            /sys/class/net/{name} -> {here}/net/{name}
        """)
        return f"{BUS}/0000:3b:00.{function}"

    return plug


def test_devices_have_what_sysfs_says(survey, plug):
    plug(0, "eth0")
    plug(1, "eth1", vendor="0x15b3")
    (nic,) = survey().find().values()
    assert (nic.id, nic.reason, nic.numa_nodes, nic.hardware) == ("0000:3b:00.0", None, (1,), ("net eth0",))
    assert nic.attributes == {
        "address": "0000:3b:00.0",
        "object": f"/sys/{BUS}/0000:3b:00.0/net/eth0",
        "vendor": "0x8086",
    }


@pytest.mark.parametrize(
    ("options", "nodes"), [({"numa": ""}, ()), ({"numa": "{attrs:node}"}, (3,)), ({"numa": "{attrs:none}"}, (1,))]
)
def test_numa_is_a_template(survey, plug, options, nodes):
    plug(0, "eth0", node="3")
    assert survey(**options).find()["0000:3b:00.0"].numa_nodes == nodes


def test_a_failed_test_is_unhealthy(survey, plug):
    plug(0, "eth0")
    (nic,) = survey(health={"carrier": Test(("1",))}).find().values()
    assert nic.reason == "health.attr.carrier: found nothing, expected 1"


def test_groups_lack_their_parts(survey, plug):
    plug(0, "eth0", card="a")
    plug(1, "eth1", card="a")
    plug(2, "eth2", card="b")
    found = survey(group=GroupOption("{attrs:card}", size=2)).find()
    assert {id_: (nic.reason, nic.hardware) for id_, nic in found.items()} == {
        "a": (None, ("net eth0", "net eth1")),
        "b": ("expected 2 objects, found 1", ("net eth2",)),
    }


def test_held_groups_are_formed_again(survey, plug):
    for number in range(3):
        plug(number, f"eth{number}")
    held = ["0000:3b:00.0+0000:3b:00.2"]
    found = survey(group=GroupOption(size=2), held=lambda: held).find()
    assert list(found) == ["0000:3b:00.0+0000:3b:00.2", "0000:3b:00.1"]


def test_one_object_is_several_devices(survey, plug):
    plug(0, "eth0", ports="2")
    assert list(survey(parts=Parts(count="{attrs:ports}")).find()) == ["0000:3b:00.0/0", "0000:3b:00.0/1"]
    plug(0, "eth0", ports="9" * 5000)
    assert survey(parts=Parts(count="{attrs:ports}")).find() == {}


def test_claimed_and_expected_ids_are_unhealthy(survey, plug):
    plug(0, "eth0", label="x")
    plug(1, "eth1", label="x")
    found = survey(id="{attrs:label}", expected=("x", "y")).find()
    assert found["x"].reason.startswith("the id is ambiguous: /sys/devices")
    assert found["y"].reason == "it isn't there: nothing that match describes has this id"
    assert [nic.hardware for nic in found.values()] == [None, None]


def test_wrong_ids_are_noticed(survey, plug):
    path = plug(0, "eth0", label="a b")
    plug(1, "eth1", label="c")
    one = survey(id="{attrs:label}")
    assert list(one.find()) == ["c"]
    assert list(one.notices) == [
        f"/sys/{path}/net/eth0 can't be offered: id: found that id: expected no blank, expected one that can be offered"
    ]


def test_explains_each_object(survey, plug):
    plug(0, "eth0")
    plug(1, "eth1", vendor="0x15b3")
    eth0, eth1 = survey().explain()
    assert (eth0.name, eth0.ids, eth0.why) == ("net eth0", ("0000:3b:00.0",), None)
    assert (eth1.ids, eth1.why.test, eth1.why.found) == ((), "match.attrs.vendor", "'0x15b3' at 0000:3b:00.1")
    assert [one.name for one in survey().explain("eth1")] == ["net eth1"]


def test_news_makes_what_it_touches(survey, plug, made):
    paths = [plug(number, f"eth{number}", card="x") for number in range(3)]
    one = survey(id="{attrs:card}-{kernel}")
    first = one.find()
    del made[:]
    again = one.find(ChangedPlaces(frozenset({paths[1]})))
    assert made == ["x-eth1"]
    assert all(again[id_] is first[id_] for id_ in first), "an equal device stays the same value"
    plug(1, "eth1", card="y")
    assert list(one.find(ChangedPlaces())) == list(first), "without an event nothing is read"
    assert list(one.find(ChangedPlaces(frozenset({paths[1]})))) == ["x-eth0", "x-eth2", "y-eth1"]


def test_newcomers_need_no_news(survey, plug, made, tree):
    plug(0, "eth0")
    one = survey()
    one.find()
    plug(1, "eth1")
    assert list(one.find(ChangedPlaces())) == ["0000:3b:00.0", "0000:3b:00.1"]
    assert made == ["0000:3b:00.0", "0000:3b:00.1"]
    tree.remove("/sys/class/net/eth0")
    assert list(one.find(ChangedPlaces())) == ["0000:3b:00.1"]


def test_concerns_related_events(survey, plug):
    path = plug(0, "eth0")
    one = survey()
    one.find()
    assert one.concerns(Uevent("add", "devices/virtual/net/x", "net"))
    assert one.concerns(Uevent("bind", path, "pci")), "it holds an interface"
    assert one.concerns(Uevent("change", f"{path}/net/eth0/queues", "queues"))
    assert not one.concerns(Uevent("bind", f"{BUS}/0000:3b:01.0", "pci"))


@pytest.mark.parametrize(("event", "changes"), [("0000:3b:00.1", 1), ("0000:3b:01.0", 0)])
def test_events_of_newcomers_are_not_missed(plug: Callable[..., str], roots: Roots, event: str, changes: int) -> None:
    """They come while the look reads what they may have changed; others' cost no look."""

    def maker(_: Look) -> Callable[[FoundDevice], str]:
        def nic(found: FoundDevice) -> str:
            one.concerns(Uevent("change", f"{BUS}/{event}", "pci"))  # as the watcher's thread does
            return found.id

        return nic

    one, recorder = Survey(Selection(NICS, roots=roots), maker), Recorder()
    log = logging.LoggerAdapter(logging.getLogger("dpgateway.test"), {})
    followed = FollowedSurvey("nics", one, recorder.context().changed, log)
    try:
        plug(0, "eth0")
        followed.find()
        plug(1, "eth1")
        before = recorder.changes
        assert list(followed.find()) == ["0000:3b:00.0", "0000:3b:00.1"]
        assert recorder.changes == before + changes
        assert list(followed.find()) == ["0000:3b:00.0", "0000:3b:00.1"]
        assert recorder.changes == before + changes, "it is known by now"
    finally:
        followed.close()


def test_roots_may_end_in_a_slash(tree: FakeTree, roots: Roots) -> None:
    """What udev writes is noticed all the same."""
    tree.write("""
        /sys/class/net/eth0/uevent = IFINDEX=2
        /run/udev/data/n2 = E:ID_NET=a
    """)
    slashes = Roots(f"{roots.sysfs}/", f"{roots.dev}/", f"{roots.proc}/", f"{roots.udev}/")
    one = Survey(Selection((Kind("net"),), id="{env:ID_NET}", roots=slashes), lambda _: lambda found: found.id)
    recorder = Recorder()
    followed = FollowedSurvey("nics", one, recorder.context().changed, recorder.context().log)
    try:
        assert [list(followed.find()) for _ in range(2)] == [["a"], ["a"]]  # the second, since more is watched now
        before = recorder.changes
        tree.write("/run/udev/data/n2 = E:ID_NET=b")
        recorder.until(lambda: recorder.changes > before)
        recorder.until(lambda: list(followed.find()) == ["b"])
    finally:
        followed.close()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda tree, path: tree.remove(f"/sys/{path}"), "eth0 is gone"),
        (lambda tree, path: tree.write(f"/sys/{path}/vendor = 0x1"), "isn't what match describes any more"),
        (lambda tree, path: tree.write(f"/sys/{path}/card = b"), "eth0 is b of b now, it was a of a"),
    ],
)
def test_again_refuses_changes(survey, plug, tree, change, why):
    path = plug(0, "eth0", card="a")
    one = survey(id="{attrs:card}", group=GroupOption("{attrs:card}"))
    (nic,) = one.find().values()
    assert one.again(nic.id, nic.parts) == nic
    change(tree, path)
    with pytest.raises(ChangedError, match=why):
        one.again(nic.id, nic.parts)


def test_errors_forget_everything(survey, plug, roots, made):
    plug(0, "eth0")
    one = survey()
    one.find()
    one._maker = None  # whatever is raised
    with pytest.raises(TypeError):
        one.find(ChangedPlaces())
    assert not one.memory.kept


def test_follows_its_survey(survey, plug, tree):
    plug(0, "eth0", card="x y")
    recorder = Recorder()
    log = logging.LoggerAdapter(logging.getLogger("dpgateway.test"), {})
    followed = FollowedSurvey("nics", survey(id="{attrs:card}"), recorder.context().changed, log)
    try:
        assert followed.find() == {}
        plug(0, "eth0", card="z")
        assert list(followed.find()) == ["z"]
        (nic,) = followed.find().values()
        changes = recorder.changes
        tree.remove(f"/sys/{BUS}")
        with pytest.raises(ChangedError):
            followed.again(nic.id, nic.parts)
        assert recorder.changes == changes + 1
        tree.remove("/sys/class/net/eth0")
        assert followed.find() == {}
    finally:
        followed.close()
