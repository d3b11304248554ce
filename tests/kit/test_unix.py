"""Over real sockets, also with paths that are too long for one."""

import socket

import pytest

from dpgateway.kit.unix import LONGEST, Address
from tests.support.counting import leading_to


@pytest.fixture
def deep(short_path):
    """A directory with too long a path for a socket."""
    deep = short_path.joinpath(*["d" * 50] * 4)
    deep.mkdir(parents=True)
    return deep


def test_a_path_of_any_length_has_an_address_that_fits(deep):
    found = Address(deep / "x.sock")
    assert str(found) == f"unix:{found.path}"
    assert len(found.path) <= LONGEST
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(found.path)
    assert (deep / "x.sock").is_socket()
    found.close()


def test_an_address_that_is_closed_holds_no_descriptor(deep):
    addresses = [Address(deep / f"{number}.sock") for number in range(20)]
    assert leading_to(deep) == 20
    for one in [*addresses, *addresses]:
        one.close()
    assert leading_to(deep) == 0
