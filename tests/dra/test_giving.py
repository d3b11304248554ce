"""What a claim's container gets: the rest is in tests/dra/test_preparing.py."""

from dataclasses import fields

from dpgateway.cdi.producer import sayable
from dpgateway.dra.giving import LOSSES
from dpgateway.model import Allocation


def test_what_no_spec_can_say_is_named_as_a_loss() -> None:
    """Names of CDI devices are added to the answer."""
    assert {field.name for field in fields(Allocation)} == {*sayable(Allocation()), "cdi_devices", *LOSSES}
