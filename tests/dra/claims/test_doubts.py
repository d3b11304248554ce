"""When there may be claims without a record, and what other fronts keep back then."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgateway.dra.claims.doubts import ClaimDoubts
from dpgateway.dra.claims.files import ClaimDisk, ClaimFiles
from dpgateway.dra.claims.records import Damaged
from dpgateway.kit.log import bind
from dpgateway.kit.threads import Threads

X, Y = "example.com/x", "example.com/y"
BROKEN = Damaged("uid-1.json", "no JSON")


@pytest.fixture
def doubts(tmp_path: Path) -> ClaimDoubts:
    made = ClaimDoubts(ClaimDisk(ClaimFiles(tmp_path), Threads()), bind("test"))
    ClaimFiles(tmp_path).all()  # makes the folders
    made.others = lambda: {X: "n1/x", Y: "n1/y"}
    return made


def test_all_is_unsure_before_the_records_are_read(doubts: ClaimDoubts) -> None:
    assert (doubts.unsure, doubts.why.value) == (True, "")
    doubts.look_at_others()
    assert doubts.in_doubt.value == frozenset()  # peeked at, not known
    doubts.load((), compared=True)
    assert not doubts.unsure
    doubts.rest()
    assert doubts.unsure


def test_others_wait_for_the_first_comparison_but_what_they_served_before(doubts: ClaimDoubts) -> None:
    doubts.served_before = {Y}
    doubts.load((), compared=False)
    assert "PodResources" in doubts.why.value
    assert doubts.in_doubt.value == {X}
    doubts.missing("")
    assert (doubts.why.value, doubts.in_doubt.value) == ("", frozenset())


def test_nobody_waits_for_a_kubelet_that_cannot_tell(doubts: ClaimDoubts) -> None:
    doubts.load((), compared=False)
    doubts.kubelet_is_mute()
    assert doubts.in_doubt.value == frozenset()
    assert doubts.why.value  # claims still do
    doubts.kubelet_is_mute(mute=False)
    assert doubts.in_doubt.value == {X, Y}


def test_a_lost_claim_is_a_doubt_of_its_pool(doubts: ClaimDoubts) -> None:
    doubts.load((), compared=True)
    doubts.missing("the kubelet has claim c", ["n1/x"])
    assert doubts.why.value == "the kubelet has claim c"
    assert doubts.in_doubt.value == {X}
    assert doubts.why_not("uid-1") == "the kubelet has claim c"


def test_a_damaged_file_is_a_doubt_of_all_but_its_own_claim(doubts: ClaimDoubts) -> None:
    doubts.load((BROKEN,), compared=True)
    assert doubts.in_doubt.value == {X, Y}
    assert "uid-1.json" in doubts.why_not("uid-2")
    assert doubts.why_not("uid-1") == ""
    doubts.written("uid-2")
    assert doubts.damaged == {"uid-1": BROKEN}
    doubts.written("uid-1")
    assert (doubts.why.value, doubts.in_doubt.value) == ("", frozenset())


def test_another_doubt_holds_for_a_damaged_claim_too(doubts: ClaimDoubts) -> None:
    doubts.load((BROKEN, Damaged("uid-2.json", "no JSON")), compared=True)
    assert doubts.why_not("uid-1")
    doubts.load((BROKEN,), compared=False)
    assert doubts.why_not("uid-1")


async def test_the_comparison_is_known_to_the_next_gateway(doubts: ClaimDoubts, tmp_path: Path) -> None:
    doubts.load((), compared=False)
    await doubts.save()
    assert not await doubts.complete()
    doubts.missing("")
    await doubts.save()
    assert await doubts.complete()
    (tmp_path / "dra" / "claims").rmdir()
    assert not await doubts.complete()
    assert ClaimFiles(tmp_path).all() == ((), ())
    assert not await doubts.complete(), "the records that were compared are lost"
