"""Devices that share hardware exclude each other, whatever their names mean today."""

from dpgateway.deviceplugin.offer.exclusion import excluded, shared
from dpgateway.model import Device, Health
from dpgateway.node.holders import Claim, Holder, Noted
from dpgateway.node.holdings import Holdings

NOW = 1_700_000_000.0
LINK = Device("by-id-1", hardware=("char 188:0",))
NODE = Device("ttyUSB0", hardware=("char 188:0",))
OTHER = Device("ttyUSB1", hardware=("char 188:1",))
PLAIN = Device("plain")


def out(devices, holdings):
    by_id = {device.id: device for device in devices}
    return excluded(devices, holdings, lambda offered: by_id.get(offered.partition("::")[0]))


def noted(*ids, **claims):
    return Holdings(claims=claims).noted(dict.fromkeys(ids, Noted()), NOW, NOW)


def test_nothing_is_excluded_while_nothing_is_given_away():
    assert out([LINK, NODE, OTHER, PLAIN], noted()) == {}


def test_the_other_names_of_what_is_held_or_being_given_are_excluded():
    reason = {"ttyUSB0": "char 188:0 is held as by-id-1"}
    assert out([LINK, NODE, OTHER, PLAIN], noted("by-id-1")) == reason
    flying = noted().began(("by-id-1",))
    assert out([LINK, NODE, OTHER, PLAIN], flying) == reason
    assert out([LINK, NODE, OTHER, PLAIN], flying.failed(("by-id-1",))) == {}
    assert out([LINK, NODE, OTHER, PLAIN], flying.gave(("by-id-1",), NOW)) == reason


def test_the_holder_is_named():
    holdings = noted("by-id-1").heard({"by-id-1": Holder("team", "encoder-0", "c")}, NOW + 1)
    assert out([LINK, NODE], holdings) == {"ttyUSB0": "char 188:0 is held as by-id-1 by team/encoder-0 (c)"}


def test_shares_of_one_device_do_not_exclude_each_other():
    assert out([LINK, OTHER], noted("by-id-1::1")) == {}


def test_what_was_behind_an_id_when_it_was_given_away_counts_though_its_device_is_gone():
    claim = Claim("", hardware=frozenset(["char 188:0"]))
    assert out([NODE, OTHER], noted("by-id-1", **{"by-id-1": claim})) == {"ttyUSB0": "char 188:0 is held as by-id-1"}


def test_a_name_that_means_other_hardware_now_excludes_what_it_meant():
    moved = Device("by-id-1", hardware=("char 188:1",))
    claim = Claim("", hardware=frozenset(["char 188:0"]))
    assert out([moved, NODE, OTHER], noted("by-id-1", **{"by-id-1": claim})).keys() == {"ttyUSB0"}


def test_of_an_unhealthy_device_that_says_nothing_it_is_not_known_what_is_behind_it():
    absent = Device("by-id-1", Health.unhealthy("its link is gone"))
    assert "may be what a container holds as by-id-1" in out([absent, NODE], noted("by-id-1"))["ttyUSB0"]
    assert out([PLAIN, NODE], noted("plain")) == {}


def test_what_nobody_remembers_may_be_any_hardware_that_is_not_held_itself():
    excludes = out([NODE, OTHER, PLAIN], noted("by-id-1", "ttyUSB1"))
    assert excludes.keys() == {"ttyUSB0"}
    assert "may be what a container holds as by-id-1" in excludes["ttyUSB0"]


def test_an_id_is_hardware_if_the_driver_says_no_more():
    composite = Device("both", hardware=("plain", "char 188:1"))
    assert out([composite, PLAIN], noted("plain")) == {"both": "plain is held as plain"}


def test_what_is_freed_excludes_until_its_driver_was_told():
    freed = noted("by-id-1").noted({}, NOW + 1, NOW + 1)
    assert freed.freed == {"by-id-1"}
    assert out([LINK, NODE], freed).keys() == {"ttyUSB0"}
    assert out([LINK, NODE], freed.told(freed.freed)) == {}


def test_two_devices_of_one_request_may_be_the_same_hardware():
    assert shared([LINK, OTHER, PLAIN]) is None
    assert shared([OTHER, LINK, NODE]) == (LINK, NODE)
