"""A pod is gone when its directory was there and isn't any more, or should have come long ago."""

import asyncio
from pathlib import Path

import pytest

from dpgateway.node.pods import GATEWAYS, PodDirectories, other_of_us, say_ending
from tests.support.waiting import until


@pytest.fixture
def pods(tmp_path):
    (tmp_path / "pods").mkdir()
    return PodDirectories(tmp_path / "pods", lambda: None)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "pods"


def test_a_directory_that_was_seen_and_removed(pods, folder):
    (folder / "1").mkdir()
    assert pods.gone(["1"], started=False) == frozenset()
    (folder / "1").rmdir()
    assert pods.gone(["1"], started=False) == {"1"}
    assert pods.gone(["1"], started=False) == {"1"}, "and it stays gone"


def test_a_directory_that_was_seen_before_anybody_asked_for_it(pods, folder):
    (folder / "1").mkdir()
    pods.gone([], started=False)
    (folder / "1").rmdir()
    assert pods.gone(["1"], started=False) == {"1"}


def test_a_directory_that_was_never_seen(pods, folder):
    (folder / "2").mkdir()
    assert pods.gone(["1", "2"], started=False) == frozenset()
    assert pods.gone(["1", "2"], started=True) == {"1"}


def test_a_pod_that_still_gets_a_directory(pods, folder):
    for name in "12":
        (folder / name).mkdir()
    assert pods.gone(["2", "3", "4"], started=True, waiting=frozenset("23")) == {"4"}
    assert pods.starting == {"3"}
    (folder / "2").rmdir()
    assert pods.gone(["2", "3"], started=True, waiting=frozenset("23")) == {"2"}


def test_a_pod_that_is_starting(pods, folder):
    (folder / "2").mkdir()
    pods.gone(["1", "2"], started=False)
    assert pods.starting == {"1"}
    pods.gone(["1", "2"], started=True)
    assert pods.starting == frozenset()
    (folder / "2").rmdir()
    folder.rmdir()
    pods.gone(["1", "2"], started=False)
    assert pods.starting == frozenset(), "nobody can tell"


def test_an_empty_directory_may_be_another_one(pods):
    assert pods.gone(["1"], started=True) == frozenset()
    assert pods.gone(["1"], started=False, sure=True) == frozenset()
    assert pods.gone(["1"], started=True, sure=True) == {"1"}


def test_a_pod_that_comes_again_is_not_gone(pods, folder):
    (folder / "1").mkdir()
    pods.gone(["1"], started=False)
    (folder / "1").rmdir()
    assert pods.gone(["1"], started=False) == {"1"}
    (folder / "1").mkdir()
    assert pods.gone(["1"], started=False) == frozenset()


def test_what_cannot_be_looked_into_proves_nothing(pods, folder):
    (folder / "1").mkdir()
    pods.gone(["1"], started=False)
    assert pods.seen
    (folder / "1").rmdir()
    folder.rmdir()
    assert pods.gone(["1"], started=True) == frozenset()
    assert not pods.seen


async def test_a_directory_made_again_is_watched(folder):
    told = 0

    def changed():
        nonlocal told
        told += 1

    async def more_than(count):
        await until(lambda: told > count)
        return told

    folder.mkdir()
    watch = PodDirectories(folder, changed, poll=0.01)
    assert not watch.watched
    task = asyncio.create_task(watch.run())
    try:
        seen = await more_than(0)
        assert watch.watched
        (folder / "1").mkdir()
        seen = await more_than(seen)
        (folder / "1").rmdir()
        seen = await more_than(seen)
        folder.rmdir()
        folder.mkdir()
        seen = await more_than(seen)
        (folder / "2").mkdir()
        await more_than(seen)
    finally:
        task.cancel()
        await asyncio.wait({task})
    assert not watch.watched


@pytest.mark.parametrize(
    ("own", "pods", "seen"),
    [
        ("", ["u1"], None),
        ("u1", [], None),
        ("u1", ["u2"], None),
        ("u1", ["u1"], False),
        ("u1", ["u1", "u2"], True),
    ],
)
def test_another_gateways_pod_is_seen_where_our_own_is(tmp_path, own, pods, seen):
    (tmp_path / "u3/volumes/kubernetes.io~empty-dir/run").mkdir(parents=True)
    for uid in pods:
        (tmp_path / uid / GATEWAYS).mkdir(parents=True)
    assert other_of_us(tmp_path, own) is seen


def test_the_charts_volume_of_gateways():
    text = (Path(__file__).parents[2] / "deploy/helm/dpgateway/templates/daemonset.yaml").read_text()
    assert f"- name: {GATEWAYS.name} #" in text
    assert "- name: POD_UID" in text


def test_a_gateway_that_is_told_to_end_waits_for_none_that_is(tmp_path):
    for uid in ("ours", "theirs"):
        (tmp_path / uid / GATEWAYS).mkdir(parents=True)
    assert other_of_us(tmp_path, "ours")
    say_ending(tmp_path, "theirs")
    assert not other_of_us(tmp_path, "ours")
    say_ending(tmp_path, "nobody")
    say_ending(tmp_path, "")
