"""A new life of the kubelet is told from a living one's file that was touched, moved or deleted."""

import socket

import pytest

from dpgateway.node.incarnation import Change, Incarnations, SocketFile

FIRST = SocketFile(device=1, inode=10, ctime=100)
TOUCHED = SocketFile(device=1, inode=10, ctime=200)


def after(*looks):
    """What the last of several looks means, each of them a file, and the words that hold for it."""
    incarnations = Incarnations()
    for found, *words in looks:
        change = incarnations.see(found, created="created" in words, streaming="streaming" in words)
    return change


@pytest.mark.parametrize("words", [(), ("created",), ("streaming",), ("created", "streaming")])
@pytest.mark.parametrize(
    "found", [SocketFile(1, 11, 100), SocketFile(2, 10, 100), SocketFile(2, 11, 200)], ids=["inode", "device", "all"]
)
def test_another_file_is_another_incarnation(found, words):
    assert after((found, *words)) is Change.NEW
    assert after((FIRST,), (found, *words)) is Change.NEW
    assert after((FIRST,), (None,), (found, *words)) is Change.NEW


@pytest.mark.parametrize(
    ("found", "words", "meaning"),
    [
        (FIRST, (), Change.NONE),
        (FIRST, ("created",), Change.NONE),
        (FIRST, ("streaming",), Change.NONE),
        (FIRST, ("created", "streaming"), Change.NONE),
        (TOUCHED, (), Change.NEW),
        (TOUCHED, ("created",), Change.NEW),
        (TOUCHED, ("streaming",), Change.NONE),  # chmod, touch or relabelling
        (TOUCHED, ("created", "streaming"), Change.NEW),  # the inode was reused at once
        (None, (), Change.GONE),
        (None, ("streaming",), Change.GONE),
    ],
)
def test_the_same_inode_seen_again(found, words, meaning):
    assert after((FIRST,), (found, *words)) is meaning


@pytest.mark.parametrize(
    ("found", "words", "meaning"),
    [
        (FIRST, (), Change.NEW),
        (FIRST, ("streaming",), Change.BACK),
        (TOUCHED, (), Change.NEW),
        (TOUCHED, ("created",), Change.NEW),
        (TOUCHED, ("streaming",), Change.BACK),  # moved away and back while the kubelet lives
        (TOUCHED, ("created", "streaming"), Change.NEW),
        (None, (), Change.NONE),
    ],
)
def test_the_same_inode_after_it_was_gone(found, words, meaning):
    assert after((FIRST,), (None,), (found, *words)) is meaning


def test_what_was_touched_is_remembered():
    # the stream that ends later doesn't make an old touch a new kubelet
    assert after((FIRST,), (TOUCHED, "streaming"), (TOUCHED,)) is Change.NONE


def test_a_creation_whose_event_comes_late():
    # a look because of the old file's deletion found the new one already, in the same inode
    seen_early = ((FIRST,), (TOUCHED, "streaming"))
    assert after(*seen_early, (TOUCHED, "created", "streaming")) is Change.NEW
    assert after(*seen_early, (TOUCHED, "created", "streaming"), (TOUCHED, "created", "streaming")) is Change.NONE


def test_a_missing_file_is_news_once():
    assert after((None,)) is Change.NONE
    assert after((FIRST,), (None,)) is Change.GONE
    assert after((FIRST,), (None,), (None,)) is Change.NONE


# real files


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path has at most 107 bytes
    return tmp_path / "kubelet.sock"


def listen():
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("kubelet.sock")


def test_a_file_is_looked_at_as_it_is(path):
    listen()
    found = path.stat()
    assert SocketFile.look(path) == SocketFile(found.st_dev, found.st_ino, found.st_ctime_ns)


def test_no_file_and_no_way_to_know_are_the_same(path):
    assert SocketFile.look(path) is None
    path.write_text("")
    assert SocketFile.look(path / "kubelet.sock") is None


def test_a_living_kubelets_socket_can_be_touched_and_moved(path):
    incarnations = Incarnations()
    listen()
    incarnations.see(SocketFile.look(path), created=True, streaming=False)
    path.chmod(0o600)
    assert incarnations.see(SocketFile.look(path), created=False, streaming=True) is Change.NONE
    path.rename(path.with_suffix(".away"))
    assert incarnations.see(SocketFile.look(path), created=False, streaming=True) is Change.GONE
    path.with_suffix(".away").rename(path)
    assert incarnations.see(SocketFile.look(path), created=False, streaming=True) is Change.BACK
