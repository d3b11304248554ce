"""A board is believed as far as its programmer can verify it, and no further."""

import re

import pytest
from dpgateway_fpga import Board
from dpgateway_fpga.bitstream import Image
from dpgateway_fpga.programmers import PROGRAMMERS, BoardState, Failed, Verification, verify
from dpgateway_fpga.ways import VERIFIED

IMAGE = Image(b"x", "ab" * 32)


class Programmer:
    def __init__(self, verification, reading):
        self.verification, self.reading = verification, reading

    def expected(self, board, image):
        return image.sha256

    def read(self, board):
        return self.reading

    def reset(self, board):
        raise NotImplementedError

    def program(self, board, image, progress, locks=()):
        raise NotImplementedError


def _verify(verification, reading):
    return verify(Programmer(verification, reading), Board("a"), IMAGE)


def test_drivers_list_says_verification(options):
    identity, state, rest = VERIFIED.split("; ")
    for names, verification in ((identity, Verification.IDENTITY), (state, Verification.STATE)):
        for name in names.partition(":")[0].split(", "):
            assert PROGRAMMERS[name](options).verification is verification
    assert len(PROGRAMMERS) == len(re.findall(r"[a-z-]+(?=[,:])", VERIFIED)), rest


@pytest.mark.parametrize("verification", Verification)
def test_fault_fails_any_verification(verification):
    with pytest.raises(Failed, match=r"^state is write error$") as failed:
        _verify(verification, BoardState("write error", IMAGE.sha256, fault="state is write error"))
    assert not failed.value.again


def test_identity_has_to_match():
    right = BoardState("loaded", IMAGE.sha256)
    assert _verify(Verification.IDENTITY, right) == right
    with pytest.raises(Failed, match=rf"^expected the board to run {IMAGE.sha256} now, found another$"):
        _verify(Verification.IDENTITY, BoardState("loaded", "another"))
    with pytest.raises(Failed, match=r"found an unknown state$"):
        _verify(Verification.IDENTITY, BoardState("unknown"))


@pytest.mark.parametrize("verification", [Verification.STATE, Verification.NONE])
def test_faults_alone_without_verification(verification):
    found = BoardState("operating", operating=True)
    assert _verify(verification, found) == found


def test_idle_board_fails_verification():
    with pytest.raises(Failed, match=r"^expected the board to be operating now, found the state 'unknown'$"):
        _verify(Verification.STATE, BoardState("unknown"))
