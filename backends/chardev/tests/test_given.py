"""What changed of what a device gives, in words."""

import pytest
from dpgateway_chardev.given import Contribution, GivenAccess, GivenNode, differing
from dpgateway_chardev.jsons import JsonText

from dpgateway import Mount
from dpgateway.sysfs import DevNode

NODE = GivenNode("/dev/a", "/dev/x", "rw", DevNode("char", 1, 2))
FULL = Contribution(
    (NODE,),
    (Mount("/m", "/n"),),
    (("A", "1"), ("J", JsonText("{}"))),
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
        (Contribution(), FULL, "nothing else", ALL),
        (Contribution(env=(("A", "1"), ("B", "1"))), Contribution(env=(("A", "2"), ("B", "1"))), "env A=1", "env A=2"),
        (Contribution(env=(("A", "x" * 5000),)), Contribution(), f"env A={'x' * 194}...", "nothing else"),
    ],
)
def test_only_what_differs_is_told(listed, now, gone, new):
    assert differing(listed, now) == f"it gives {new} now, it was listed with {gone}"
