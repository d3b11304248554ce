"""The records, and what the resources of their claims are told."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dpgateway import Device
from dpgateway.dra.claims.files import ClaimDisk, ClaimFiles
from dpgateway.dra.claims.records import ClaimRecord, Given, Phase
from dpgateway.dra.claims.store import ClaimStore, Left
from dpgateway.errors import RequestError
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.resource.exclusion import Pool
from dpgateway.resource.front import Unreleased
from tests.dra.claim_node import BOOT, LOG, ClaimedResource, lanes
from tests.support.resources import NAME
from tests.support.waiting import until

OTHER = "example.com/other"
BOARD = Device("a", hardware=("board",))


class Unfollowed(ClaimedResource):
    """Its own task hasn't followed what claims hold yet."""

    def _follow(self) -> None:
        pass


def claim(resource: str = NAME) -> ClaimRecord:
    given = Given("r", resource, "n1", (("a", ""),), ("a",))
    return ClaimRecord("uid-1", "default", "c", Phase.PREPARING, BOOT, (given,))


@pytest.fixture
def left() -> Left:
    return Observable({})


@pytest.fixture
async def store(tmp_path: Path, left: Left) -> ClaimStore:
    files = ClaimFiles(tmp_path)
    made = ClaimStore(ClaimDisk(files, Threads()), BOOT, left, LOG)
    files.all()  # makes the folders
    files.completed()
    await made.load()
    return made


@pytest.fixture
async def pool(store: ClaimStore) -> dict[str, ClaimedResource]:
    """Two resources of one pool, with the same board."""
    found, pool = dict[str, ClaimedResource](), Pool()
    for name in (NAME, OTHER):
        found[name] = Unfollowed(lanes(), BOARD, name=name)
    for name, resource in found.items():
        store.add(name, resource)
        resource.inventory.exclusion.join(pool)
    return found


async def test_a_record_takes_its_hardware_from_the_pool_in_the_same_step(
    store: ClaimStore, pool: dict[str, ClaimedResource]
) -> None:
    """Else a claim of the other resource would choose the board, and be refused by its grant."""
    steps = store.write(claim())
    steps.send(None)
    assert "held as example.com/thing" in pool[OTHER].inventory.ledger.excluded("a")
    steps.close()


@pytest.mark.parametrize(("driver", "counts"), [("scripted", {"a"}), ("", set())])
@pytest.mark.parametrize("loaded", [True, False])
async def test_what_only_a_journal_knows_counts_on_the_other_front(
    tmp_path: Path, left: Left, driver: str, counts: set[str], loaded: bool
) -> None:
    store = ClaimStore(ClaimDisk(ClaimFiles(tmp_path), Threads()), BOOT, left, LOG)
    if loaded:
        await store.load()
        store.doubts.missing("")
    store.journal = lambda name: {"a": Unreleased("", hardware=frozenset({"board"}), device="a", driver=driver)}
    store.doubts.others = lambda: {OTHER: "n1"}
    await store.peek()
    assert (left.value[OTHER].taken if OTHER in left.value else set()) == counts


async def test_a_resource_that_comes_back_releases_what_its_journal_has(store: ClaimStore, left: Left) -> None:
    store.journal = lambda name: {"a": Unreleased("", hardware=frozenset({"board"}), device="a", driver="scripted")}
    store.doubts.others = lambda: {OTHER: "n1"}
    await store.peek()
    assert left.value.keys() == {OTHER}
    store.add(OTHER, Unfollowed(lanes(), BOARD, name=OTHER))
    assert not left.value


async def test_what_killed_gateways_left_is_removed(store: ClaimStore, tmp_path: Path) -> None:
    """A new file of now may have a writer."""
    await store.write(claim())
    new = [tmp_path / "dra" / name for name in (".complete.0a1b2c3d", "claims/.uid-1.json.abcd_123")]
    for path in new:
        path.touch()
    await store.load()
    assert all(path.exists() for path in new)
    for path in new:
        os.utime(path, (0, 0))
    await store.load()
    assert not any(path.exists() for path in new)
    assert store.records.keys() == {"uid-1"}


async def test_the_end_of_a_record_frees_its_hardware(store: ClaimStore, pool: dict[str, ClaimedResource]) -> None:
    await store.write(claim())
    await store.forget(claim())
    assert pool[OTHER].inventory.ledger.excluded("a") == ""


async def test_what_another_front_offers_by_now_is_left_to_the_pools(
    store: ClaimStore, pool: dict[str, ClaimedResource], left: Left
) -> None:
    await store.write(claim())
    assert left.value == {}
    store.drop(NAME)
    assert {name: it.last_known for name, it in left.value.items()} == {NAME: frozenset("a")}
    await store.forget(claim())
    assert left.value == {}


async def test_a_claim_that_is_given_the_same_again_is_told_of_again(
    store: ClaimStore, pool: dict[str, ClaimedResource]
) -> None:
    owed: list[str] = []

    def owe(resource: str, id_: str, _: Unreleased) -> bool:
        owed.append(f"{id_} of {resource}")
        return True

    store.owe = owe
    for times in (1, 2):
        await store.write(claim(), recalled=True)
        store.drop(NAME)
        await store.write(replace(claim(), phase=Phase.ENDING))
        assert store.untold(claim(), NAME) == frozenset()
        assert owed == [f"a of {NAME}"] * times
        store.add(NAME, pool[NAME])


async def test_what_needs_no_release_is_not_missed(store: ClaimStore, pool: dict[str, ClaimedResource]) -> None:
    """Its driver has no release(), so nobody is warned that it isn't told."""
    usage = pool[NAME].usage
    usage.set(usage.value.given_by("").owed(("a",), {"a": frozenset(["board"])}))
    await store.write(claim())
    store.drop(NAME)
    ends = replace(claim(), phase=Phase.ENDING)
    await store.write(ends)
    assert store.untold(ends, NAME) == frozenset()


async def test_what_nobody_releases_yet_is_left_to_the_pools(
    store: ClaimStore, pool: dict[str, ClaimedResource], left: Left
) -> None:
    """The resource may have left DRA, and its driver on the other front doesn't run yet."""
    answer: list[bool | None] = [None]
    store.owe = lambda *_: answer[0]
    usage = pool[NAME].usage
    usage.set(usage.value.given_by("scripted").owed(("a",), {"a": frozenset(["board"])}))
    await store.write(claim())
    store.drop(NAME)
    ends = replace(claim(), phase=Phase.ENDING)
    await store.write(ends)
    assert {name: it.taken for name, it in left.value.items()} == {NAME: frozenset("a")}
    answer[0] = True
    assert store.untold(ends, NAME) == frozenset()
    assert left.value == {}


async def test_what_an_earlier_gateway_did_not_release_is_left_to_the_pools(
    store: ClaimStore, starting: ClaimStore, left: Left
) -> None:
    """Before the records are this gateway's, and the journal is as that one left it."""
    given = Unreleased("", hardware=frozenset(["board"]), driver="scripted")
    starting.journal = lambda _: {"a": given}
    await store.write(replace(claim(), phase=Phase.ENDING))
    await starting.peek()
    assert {name: it.unreleased for name, it in left.value.items()} == {NAME: {"a": given}}


@pytest.fixture
def starting(tmp_path: Path, left: Left) -> ClaimStore:
    """The store of a gateway that hasn't read the records."""
    return ClaimStore(ClaimDisk(ClaimFiles(tmp_path), Threads()), BOOT, left, LOG)


async def test_a_look_at_what_claims_hold_makes_no_folder(starting: ClaimStore, tmp_path: Path, left: Left) -> None:
    """On a disk that is full, or read-only, the resources of the device plugin would never be served."""
    (tmp_path / "dra").write_text("in the way")
    await starting.peek()
    assert left.value == {}


async def test_a_look_at_records_that_are_loaded_meanwhile_changes_nothing(
    store: ClaimStore, starting: ClaimStore, left: Left
) -> None:
    """It has those of before: a device would be withheld that is free, or given away that a claim has since."""
    began, goes_on = threading.Event(), threading.Event()

    def journal(_: str) -> dict[str, Unreleased]:
        if not began.is_set():
            began.set()
            goes_on.wait(60)
        return {}

    await store.write(claim())
    starting.journal = journal
    looking = asyncio.create_task(starting.peek())
    await until(began.is_set)
    await starting.load()
    await starting.forget(claim())
    goes_on.set()
    await looking
    assert left.value == {}


async def test_records_that_cannot_be_read_are_not_taken_for_none(starting: ClaimStore, tmp_path: Path) -> None:
    (tmp_path / "dra").mkdir()
    (tmp_path / "dra" / "claims").symlink_to("claims")
    with pytest.raises(OSError, match="symbolic links"):
        await starting.peek()


async def test_a_record_is_written_once_the_disk_can(store: ClaimStore, tmp_path: Path) -> None:
    """The comparison with the kubelet's claims does it."""
    store.usage(NAME)
    folder = tmp_path / "dra" / "claims"
    folder.rename(tmp_path / "away")
    with pytest.raises(RequestError, match="can't be written"):
        await store.write(claim())
    (tmp_path / "away").rename(folder)
    await store.compared("")
    assert [path.stem for path in folder.glob("*.json")] == ["uid-1"]
