"""Devices that share hardware exclude each other, whatever their names mean today."""

from dataclasses import replace

import pytest

from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.model import Device, Health
from dpgateway.node.holders import Container, Holder, Noted
from dpgateway.resource.front import Unreleased
from dpgateway.resource.shares import share_ids
from dpgateway.resource.use import HardwareUse, counted, crowded, excluded, excluders, hardware_use, shared, worked_on

NOW = 1_700_000_000.0
LINK = Device("by-id-1", hardware=("char 188:0",))
NODE = Device("ttyUSB0", hardware=("char 188:0",))
OTHER = Device("ttyUSB1", hardware=("char 188:1",))
PLAIN = Device("plain")


def use(devices, holdings, name="example.com/serial", **more):
    by_id = {device.id: device for device in devices}
    return hardware_use(name, holdings, lambda offered: by_id.get(offered.partition("::")[0]), **more)


def out(devices, holdings, *others):
    return excluded(devices, use(devices, holdings), others)


def noted(*ids, **unreleased):
    return Holdings(unreleased=unreleased).noted(dict.fromkeys(ids, Noted()), NOW, NOW)


def test_nothing_is_excluded_while_nothing_is_given_away():
    assert out([LINK, NODE, OTHER, PLAIN], noted()) == {}


def test_other_names_are_excluded():
    reason = {"ttyUSB0": "char 188:0 is held as by-id-1"}
    assert out([LINK, NODE, OTHER, PLAIN], noted("by-id-1")) == reason
    flying = noted().began(("by-id-1",))
    assert out([LINK, NODE, OTHER, PLAIN], flying) == reason
    assert out([LINK, NODE, OTHER, PLAIN], flying.failed(("by-id-1",))) == {}
    assert out([LINK, NODE, OTHER, PLAIN], flying.gave(("by-id-1",), NOW)) == reason


def test_the_holder_is_named():
    holdings = noted("by-id-1").heard({"by-id-1": Holder("team", "encoder-0", "c")}, NOW + 1)
    assert out([LINK, NODE], holdings) == {"ttyUSB0": "char 188:0 is held as by-id-1 by team/encoder-0"}


def test_shares_of_one_device_do_not_exclude_each_other():
    assert out([LINK, OTHER], noted("by-id-1::1")) == {}


def test_hardware_at_the_grant_counts():
    entry = Unreleased("", hardware=frozenset(["char 188:0"]))
    assert out([NODE, OTHER], noted("by-id-1", **{"by-id-1": entry})) == {"ttyUSB0": "char 188:0 is held as by-id-1"}


def test_a_name_excludes_what_it_meant():
    moved = Device("by-id-1", hardware=("char 188:1",))
    entry = Unreleased("", hardware=frozenset(["char 188:0"]))
    assert out([moved, NODE, OTHER], noted("by-id-1", **{"by-id-1": entry})).keys() == {"ttyUSB0"}


def test_an_unhealthy_device_that_says_nothing():
    absent = Device("by-id-1", Health.unhealthy("its link is gone"))
    assert "may be what a container holds as by-id-1" in out([absent, NODE], noted("by-id-1"))["ttyUSB0"]
    assert out([PLAIN, NODE], noted("plain")) == {}


def test_unknown_hardware_may_be_any():
    excludes = out([NODE, OTHER, PLAIN], noted("by-id-1", "ttyUSB1"))
    assert excludes.keys() == {"ttyUSB0"}
    assert "may be what a container holds as by-id-1" in excludes["ttyUSB0"]


def test_an_id_is_hardware_if_the_driver_says_no_more():
    composite = Device("both", hardware=("plain", "char 188:1"))
    assert out([composite, PLAIN], noted("plain")) == {"both": "plain is held as plain"}


def test_freed_hardware_excludes_other_names():
    freed = noted("by-id-1").noted({}, NOW + 1, NOW + 1)
    assert freed.freed == {"by-id-1"}
    assert out([LINK, NODE], freed).keys() == {"ttyUSB0"}
    assert out([LINK, NODE], freed.released(freed.freed)) == {}


def test_same_hardware_twice_in_a_request():
    assert shared([LINK, OTHER, PLAIN]) is None
    assert shared([OTHER, LINK, NODE]) == (LINK, NODE)


def test_joint_devices_go_to_one_container():
    gpu, sound = (Device(id_, hardware=(f"pci {id_}", "char 240:12"), joint=True) for id_ in ("01:00.0", "01:00.1"))
    alone = Device("12", hardware=("char 240:12",))
    assert shared([gpu, sound]) is None
    assert shared([gpu, alone]) == (gpu, alone)
    # a container has one of them, or both
    assert out([gpu, sound], noted(gpu.id)) == {sound.id: "char 240:12 is held as 01:00.0"}
    assert out([gpu, sound], noted(gpu.id, sound.id)) == {}
    assert out([gpu, sound, alone], noted(gpu.id, sound.id)) == {alone.id: "char 240:12 is held as 01:00.0"}


def test_joint_devices_are_apart_until_all_are_free():
    gpu, sound = (Device(id_, hardware=("char 240:12",), joint=True) for id_ in ("01:00.0", "01:00.1"))
    one_freed = noted(gpu.id, sound.id).noted({gpu.id: Noted()}, NOW + 1, NOW + 1)
    assert one_freed.freed == {sound.id}
    assert out([gpu, sound], one_freed) == {sound.id: "char 240:12 is held as 01:00.0"}
    both_freed = one_freed.noted({}, NOW + 2, NOW + 2)
    assert out([gpu, sound], both_freed).keys() == {gpu.id, sound.id}, "each may be given to another container first"
    assert out([gpu, sound], both_freed.released(both_freed.freed)) == {}


# other resources of the pool

AES, FFT = "example.com/aes", "example.com/fft"
BOARD, SECOND = Device("b0"), Device("b1")


def pods_of(*uids):
    return frozenset(Container(uid, "c") for uid in uids)


def known(*ids, **unreleased):
    return noted(*ids, **unreleased).remembered({})


def beside(holdings, **more):
    """Why the boards can't be given away as another resource than the one whose containers hold something."""
    return out([BOARD, SECOND], known(), use([BOARD, SECOND], holdings, AES, **more))


def test_excluded_in_other_resources():
    reason = {"b0": "held as example.com/aes by a container"}
    assert beside(known()) == {}
    assert beside(known("b0")) == beside(known("b0::1")) == reason
    flying = known().began(("b0",))
    assert beside(flying) == beside(flying.gave(("b0",), NOW)) == reason
    assert beside(flying.failed(("b0",))) == {}


def test_hardware_of_an_earlier_drivers_call():
    earlier = worked_on(AES, "prepare", [BOARD])
    reason = {"b0": "held as example.com/aes by prepare() of its driver, which ended before that call did"}
    boards = [BOARD, SECOND]
    assert out(boards, known(), earlier) == reason
    assert excluded(boards, use(boards, known(), AES), [earlier]) == reason
    assert excluded(boards, use(boards, known("b0"), AES), [earlier]) == {}
    fft = use(boards, known("b0"), FFT)
    assert excluded(boards, use(boards, known("b0"), AES), [fft, earlier])["b0"].startswith("held as example.com/fft")


def test_the_uses_that_exclude_a_device_are_named_if_all_are_known():
    own, fft = use([BOARD], known(), AES), use([BOARD], known("b0", "b0::1"), FFT)
    assert excluders(BOARD, own, [fft, HardwareUse(NAME, known=True)]) == frozenset([(FFT, "b0"), (FFT, "b0::1")])
    assert excluders(SECOND, own, [fft]) == frozenset()
    assert excluders(BOARD, use([BOARD], known("b0"), AES), []) == frozenset(), "it has itself"
    assert excluders(NODE, use([LINK, NODE], known("by-id-1")), []) == frozenset([("example.com/serial", "by-id-1")])
    assert excluders(BOARD, own, [fft, HardwareUse(NAME)]) is None
    assert excluders(BOARD, replace(own, forgotten="x"), [fft]) is None
    assert excluders(BOARD, own, [fft, worked_on(FFT, "prepare", [BOARD])]) is None


def test_the_pod_is_named_or_else_its_uid():
    holdings = known().noted({"b0": Noted((), pods_of("1a", "2b"))}, NOW, NOW)
    assert beside(holdings)["b0"] == "held as example.com/aes by pod 1a"
    assert beside(holdings.ended(frozenset(["1a"])))["b0"] == "held as example.com/aes by pod 2b"
    listed = holdings.heard({"b0": Holder("team", "encoder-0", "c")}, NOW + 1)
    assert beside(listed)["b0"] == "held as example.com/aes by team/encoder-0"


def test_the_holder_named_if_it_can_be_no_other():
    holdings = known().remembered({"b0": Unreleased("earlier", frozenset(["1a", "2b"]))})
    assert beside(holdings)["b0"] == "held as example.com/aes by a container"
    assert beside(holdings.ended(frozenset(["1a"])))["b0"] == "held as example.com/aes by pod 2b"


def test_who_is_getting_a_device_is_not_who_had_it():
    had = known().noted({"b0": Noted((), pods_of("1a"))}, NOW, NOW)
    assert beside(had.began(("b0",)))["b0"] == "held as example.com/aes by a container"


def test_drivers_meet_where_they_say_the_same_name():
    whole = Device("gpu0", hardware=("pci 0000:3b:00.0", "pci 0000:3b:00.1"))
    function = Device("vf1", hardware=("pci 0000:3b:00.1",))
    reason = "pci 0000:3b:00.1 is held as example.com/aes by a container"
    assert out([function, PLAIN], known(), use([whole], known("gpu0"), AES)) == {"vf1": reason}
    assert out([whole, PLAIN], known(), use([function], known("vf1"), AES)) == {"gpu0": reason}


def test_while_another_resource_is_unknown():
    reason = "it isn't known yet what containers hold as example.com/aes"
    for unknown in Holdings(), noted(), Holdings().remembered({}):
        assert beside(unknown) == dict.fromkeys(["b0", "b1"], reason)
    assert out([BOARD, SECOND], known("b0"), use([], Holdings(), AES)) == {"b1": reason}


def test_unknown_hardware_of_another_resource():
    reason = "it may be what a container holds as b7 of example.com/aes, because nobody remembers what that was"
    assert out([BOARD, SECOND], known("b1"), use([BOARD], known("b7"), AES)) == {"b0": reason}
    entry = Unreleased("", hardware=frozenset(["b7"]))
    assert out([BOARD, SECOND], known(), use([BOARD], known("b7", b7=entry), AES)) == {}


def test_unknown_hardware_that_is_free():
    """A gateway starts with a checkpoint that names a pod which has ended; then the kubelet writes another one."""
    freed = known("b7").noted({}, NOW + 1, NOW + 1)
    assert freed.freed == {"b7"}
    assert beside(freed) == out([BOARD, SECOND], freed) == {}


def test_freed_hardware_excludes_other_resources():
    freed = known("b0").noted({}, NOW + 1, NOW + 1)
    assert freed.freed == {"b0"}
    assert beside(freed).keys() == {"b0"}
    assert beside(freed, untold=False) == beside(freed.released(freed.freed)) == {}


def test_a_held_share_under_an_old_form():
    other = Device("other", hardware=("char 188:2",))
    own = hardware_use("example.com/serial", noted("x0", "nobody-knows"), {"x0": LINK}.get)
    assert own.forgotten == "nobody-knows"
    assert excluded([LINK, other], own).keys() == {"other"}


# shares of one device


def test_an_old_share_takes_the_last_free_one():
    def taken(holdings, shares):
        return crowded({"plain": PLAIN}, lambda name: share_ids(name, shares), use([PLAIN], holdings))

    assert taken(noted("plain::1"), 2) == taken(noted(), 1) == {}
    assert taken(noted("plain::1"), 1).keys() == {"plain"}
    assert taken(noted("plain::3"), 3).keys() == {"plain::2"}
    assert taken(noted("plain::2", "plain::3", "plain::4"), 3).keys() == {"plain::1", "plain"}
    assert taken(noted("plain::2", "plain"), 1) == {}, "what is held stays as it is"
    named = known().noted({"plain::3": Noted((), pods_of("1a"))}, NOW, NOW)
    assert taken(named, 1) == {"plain": "its share is held as plain::3, which isn't offered any more, by pod 1a"}


def test_an_id_counts_for_the_device_it_meant():
    entry = Unreleased("", hardware=frozenset(["char 188:0"]), device="by-id-1")
    holdings = noted("ttyUSB0", ttyUSB0=entry)
    own = use([LINK, OTHER], holdings)
    assert out([LINK, OTHER], holdings) == {}, "its own device isn't another one"
    assert crowded({"by-id-1": LINK}, lambda name: (name,), own).keys() == {"by-id-1"}
    moved = Device("by-id-1", hardware=("char 188:1",))
    assert crowded({"by-id-1": moved}, lambda name: (name,), own) == {}


def test_unknown_ids_where_ids_have_a_form():
    holdings = noted("0/gone")
    assert excluded([PLAIN], use([PLAIN], holdings)) == {}
    assert excluded([PLAIN], use([PLAIN], holdings), formed=True).keys() == {"plain"}


# what another front gave to pods that the scheduler counts

NAME = "example.com/serial"
OF_CLAIMS = HardwareUse(
    f"{NAME} on the other front", known=True, ids=frozenset(["b0"]), by_hardware={"b0": ["b0"]}, counted={"b0": NAME}
)
NOBODY = HardwareUse(NAME, known=True)


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (NOBODY, [OF_CLAIMS], {"b0": 1}),
        (NOBODY, [OF_CLAIMS, HardwareUse(AES, known=True, by_hardware={"b1": ["b1"]})], {"b0": 1}),
        (NOBODY, [replace(OF_CLAIMS, counted={})], {}),
        (NOBODY, [replace(OF_CLAIMS, counted={"b0": AES})], {}),
        (NOBODY, [OF_CLAIMS, HardwareUse(AES, known=True, by_hardware={"b0": ["b0"]})], {}),
        (NOBODY, [replace(OF_CLAIMS, by_hardware={"b0": ["b0", "x"]})], {}),
        (NOBODY, [replace(OF_CLAIMS, known=False)], {}),
        (NOBODY, [OF_CLAIMS, HardwareUse(AES)], {}),
        (replace(NOBODY, by_hardware={"b0": ["b0"]}), [OF_CLAIMS], {}),
        (replace(NOBODY, forgotten="x"), [OF_CLAIMS], {}),
        (replace(NOBODY, holders={"b1": "team/p"}), [replace(OF_CLAIMS, holders={"b0": "team/p"})], {}),
        (replace(NOBODY, holders={"b1": ""}), [replace(OF_CLAIMS, holders={"b0": ""})], {"b0": 1}),
        (
            NOBODY,
            [replace(OF_CLAIMS, by_hardware={"b0": ["b0", "b0::1"]}, counted={"b0": NAME, "b0::1": NAME})],
            {"b0": 2},
        ),
    ],
    ids=[
        "a claim of the resource",
        "others have other hardware",
        "in doubt, or hand-written",
        "a claim of another resource",
        "another resource has it, too",
        "an uncounted claim has it, too",
        "the front's claims aren't known",
        "another resource isn't known",
        "a container has it, too",
        "a container may have it",
        "its pod has another device, too",
        "its pod isn't known",
        "two shares",
    ],
)
def test_only_what_is_counted_for_certain_stays_healthy(own, others, expected):
    assert counted([BOARD, SECOND], own, others) == expected
