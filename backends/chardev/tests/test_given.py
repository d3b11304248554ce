"""What changed of what a device gives, in words."""

import pytest
from dpgateway_chardev.given import Given, GivenAccess, GivenNode, differing
from dpgateway_chardev.jsons import Json

from dpgateway import Mount
from dpgateway.sysfs import DevNode

NODE = GivenNode("/dev/a", "/dev/x", "rw", DevNode("char", 1, 2))
FULL = Given(
    (NODE,),
    (Mount("/m", "/n"),),
    (("A", "1"), ("J", Json("{}"))),
    (("k", "v"),),
    (GivenAccess("/dev/a", 1, None, 0o660),),
    "{}",
)


ALL = (
    "nodes /dev/a (char 1:2) as /dev/x, rw; mounts /m at /n, read-only; env A=1; env J={}; annotations k=v; "
    "access /dev/a: owner 1, group None, mode 0o660; info {}"
)


@pytest.mark.parametrize(
    ("listed", "now", "gone", "new"),
    [
        (Given(), FULL, "nothing else", ALL),
        (Given(env=(("A", "1"), ("B", "1"))), Given(env=(("A", "2"), ("B", "1"))), "env A=1", "env A=2"),
        (Given(env=(("A", "x" * 5000),)), Given(), f"env A={'x' * 194}...", "nothing else"),
    ],
)
def test_only_what_differs_is_told(listed, now, gone, new):
    assert differing(listed, now) == f"it gives {new} now, it was listed with {gone}"
