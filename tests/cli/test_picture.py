"""What is drawn of a status: the whole text, and what is in colour on a terminal."""

import contextlib
import os
import pty
import re

import pytest

from dpgateway.cli.picture import draw

NOW = "2026-01-01T12:00:00.000Z"
R, S = "example.com/a", "example.com/b"


def at(ago):
    """A moment before now, which is written as ``11:59:00``."""
    return f"2026-01-01T{ago}.000Z"


def device(id_, *, healthy=True, **others):
    usual = {"lost": False, "reason": None, "since": at("11:59:55"), "held": False, "held_since": None, "holders": []}
    return {"id": id_, "healthy": healthy, "numa_nodes": [], "attributes": {}, **usual, **others}


def resource(name, *devices, **others):
    ill = sum(not one["healthy"] for one in devices)
    counts = {"healthy": len(devices) - ill, "unhealthy": ill, "held": 0, "free": len(devices) - ill, "lost": 0}
    usual = {
        "registrations": [{"state": "serving", "since": at("11:00:00"), "streaming": True}],
        "counts": counts,
        "failure": None,
        "driver": {"name": "fake", "version": "1.2", "listed": at("11:59:50"), "error": None},
        "devices": devices,
    }
    return {"name": name, **usual, **others}


def event(message, resource="", *devices, level="info"):
    return {"time": at("11:00:00"), "level": level, "message": message, "resource": resource, "devices": devices}


def status(*resources, **others):
    usual = {
        "time": NOW,
        "gateway": {"version": "0.1", "node": "n", "pid": 7, "since": at("10:58:50")},
        "kubelet": {"there": True, "since": at("11:58:48"), "api": "v1beta1", "release": "1.31"},
        "pod_resources": {"failure": None},
        "reloads": {"refusal": None},
        "resources": resources,
        "troubles": [],
        "events": [],
    }
    return {**usual, **others}


def trouble(resource, reason, advice, since=None, level="warning"):
    return {"level": level, "resource": resource, "reason": reason, "since": since, "advice": advice}


@pytest.fixture
def drawn(capsys):
    def drawn(status, *, whole=False):
        draw(status, whole=whole)
        return capsys.readouterr().out

    return drawn


def test_nothing_is_wrong(drawn):
    assert (
        drawn(status(resource(R, device("x"))))
        == """\
gateway 0.1 of node n, pid 7, for 1h1m
kubelet: there for 1m12s, speaks v1beta1, release 1.31

RESOURCE       KUBELET  FOR  HEALTHY  UNHEALTHY  HELD  FREE  LOST  DRIVER    LISTED
example.com/a  serving  1h   1        0          0     1     0     fake 1.2  10s ago
"""
    )


def test_much_is_wrong(drawn):
    unheard = {"state": "waiting", "since": at("11:00:00"), "streaming": False}
    error = {"since": at("11:59:00"), "reason": "no bus"}
    driver = {"name": "fake", "version": None, "listed": None, "error": error}
    ill = device("x", healthy=False, reason="too hot", numa_nodes=[0, 1], attributes={"vendor": "1d0f", "ok": True})
    gone = device("y", healthy=False, lost=True, reason="it is gone", held=True, held_since=at("11:00:00"))
    first = resource(R, ill, gone, device("z"), registrations=[unheard])
    second = resource(S, driver=driver, failure={"since": at("11:59:00"), "reason": "no such driver"})
    problems = ["config.yaml:3: wrong", "config.yaml:4: wrong too"]
    refusal = {"time": at("11:50:00"), "problems": problems, "served": "the old one goes on"}
    troubles = [
        trouble(S, "no such driver", "look at the disk", at("11:59:00"), "error"),
        trouble("", "no socket", "restart it"),
        trouble(R, "a full disk", "look at the disk"),
        trouble(R, "1 of 3 devices Unhealthy (x): too hot", None, at("11:59:55")),
    ]
    events = [event("the first"), event("the second", R, "x", "y", level="warning")]
    kubelet = {"there": True, "since": at("11:58:48"), "api": None, "release": None}
    others = {"pod_resources": {"failure": "no socket"}, "reloads": {"refusal": refusal}, "kubelet": kubelet}
    text = drawn(status(first, second, troubles=troubles, events=events, **others))
    assert (
        text
        == """\
gateway 0.1 of node n, pid 7, for 1h1m
kubelet: there for 1m12s, accepted no registration yet
the kubelet doesn't say which pods have what: no socket
the configuration has been refused for 10m, and the old one goes on:
config.yaml:3: wrong
config.yaml:4: wrong too

RESOURCE       KUBELET  FOR  HEALTHY  UNHEALTHY  HELD  FREE  LOST  DRIVER    LISTED
example.com/a  waiting  1h   1        2          0     1     0     fake 1.2  10s ago
example.com/b  serving  1h   0        0          0     0     0     fake      never
example.com/b, for 1m: no such driver
example.com/a: a full disk
example.com/a, for 5s: 1 of 3 devices Unhealthy (x): too hot

RESOURCE       ID  HEALTH     FOR  HELD BY             REASON      NUMA  ATTRIBUTES
example.com/a  x   Unhealthy  5s   -                   too hot     0,1   vendor=1d0f ok=True
example.com/a  y   lost       5s   a container for 1h  it is gone

what to do about example.com/b, example.com/a: look at the disk
what to do: restart it

2026-01-01T11:00:00.000Z info    the first
2026-01-01T11:00:00.000Z warning the second (example.com/a x,y)
"""
    )


def test_all_devices_of_one_resource(drawn):
    holders = [
        {"namespace": "default", "pod": "p", "pod_uid": "u", "container": "c"},
        {"namespace": None, "pod": None, "pod_uid": "v", "container": "d"},
    ]
    held = device("x", held=True, held_since=at("11:59:58"), holders=holders)
    error = {"since": at("11:59:00"), "reason": "no bus"}
    driver = {"name": "fake", "version": "1.2", "listed": at("11:59:50"), "error": error}
    events = [event("mine", R), event("another's", S)]
    troubles = [trouble(S, "another's", "look at that one")]
    text = drawn(status(resource(R, held, device("y"), driver=driver), events=events, troubles=troubles), whole=True)
    assert (
        text.partition("ago\n")[2]
        == """\
its driver's last error, 1m ago: no bus

RESOURCE       ID  HEALTH   FOR  HELD BY                          REASON  NUMA  ATTRIBUTES
example.com/a  x   Healthy  5s   default/p (c), pod v (d) for 2s  -
example.com/a  y   Healthy  5s   -                                -

2026-01-01T11:00:00.000Z info    mine (example.com/a)
"""
    )


def test_no_kubelet_and_no_resource(drawn):
    nobody = {"there": False, "since": None, "api": None, "release": None}
    text = "gateway 0.1 of node n, pid 7, for 1h1m\nkubelet: none\n"
    assert drawn(status(kubelet=nobody, pod_resources={"failure": "no socket"})) == text


def test_twenty_of_many_devices(drawn):
    many = resource(R, *(device(f"x{number}", healthy=False) for number in range(22)))
    text = drawn(status(many))
    assert (text.count("Unhealthy"), text.splitlines()[-1]) == (
        21,
        "and 2 more that are Unhealthy: name a resource to see its devices",
    )
    assert drawn(status(many), whole=True).count("Unhealthy") == 22


def test_last_ten_events(drawn):
    text = drawn(status(events=[event(f"event {number}") for number in range(12)]))
    assert [line.rpartition(" ")[2] for line in text.splitlines()[-10:]] == [str(number) for number in range(2, 12)]
    assert "event 1\n" not in text


@pytest.mark.parametrize(
    ("since", "age"),
    [
        ("2026-01-01T11:59:59.500Z", "0s"),
        ("2026-01-01T12:00:01.000Z", "0s"),
        ("2026-01-01T11:00:01.000Z", "59m59s"),
        ("2026-01-01T10:59:59.000Z", "1h"),
        ("2025-12-31T12:00:01.000Z", "23h59m"),
        ("2025-12-31T10:49:00.000Z", "25h"),
    ],
)
def test_age_in_one_or_two_units(drawn, since, age):
    gateway = {"version": "0.1", "node": "n", "pid": 7, "since": since}
    assert drawn(status(gateway=gateway)).splitlines()[0] == f"gateway 0.1 of node n, pid 7, for {age}"


@pytest.fixture
def coloured(monkeypatch):
    """The lines that a terminal shows in a colour, by their first word: 31 is red, 33 yellow."""
    for name, value in {"TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)

    def coloured(status):
        return re.findall(r"^\x1b\[(31|33)m([^\s\x1b]+(?: +\w+)?)", on_terminal(status), re.MULTILINE)

    return coloured


def on_terminal(status):
    """What a terminal gets."""
    master, slave = pty.openpty()
    with open(slave, "w") as terminal, contextlib.redirect_stdout(terminal):  # noqa: PTH123  it has no path
        draw(status, whole=False)
    text = ""
    with contextlib.suppress(OSError):  # EIO: nobody has the terminal any more, and all was read
        while True:  # the kernel passes it on in pieces
            text += os.read(master, 65536).decode()
    os.close(master)
    return text


def test_what_is_wrong_is_in_colour(coloured):
    silent = {"state": "waiting", "since": at("11:00:00"), "streaming": False}
    good, waiting = resource(R, device("x")), resource("silent", registrations=[silent])
    ill = resource("ill", device("y", healthy=False, reason="hot"), device("z"))
    broken = resource("broken", device("x"), failure={"since": None, "reason": "no bus"})
    kubelet = {"there": True, "since": None, "api": None, "release": None}
    assert coloured(status(good)) == []
    troubles = [trouble("broken", "no bus", None, level="error"), trouble("silent", "it refused", None)]
    assert coloured(status(good, waiting, ill, broken, kubelet=kubelet, troubles=troubles)) == [
        ("33", "kubelet: there"),
        ("33", "silent"),
        ("33", "ill"),
        ("31", "broken"),
        ("31", "broken: no"),
        ("33", "silent: it"),
        ("33", "ill"),
    ]


def test_a_narrow_terminal_breaks_no_word(monkeypatch):
    for name, value in {"TERM": "dumb", "COLUMNS": "40", "LINES": "25"}.items():
        monkeypatch.setenv(name, value)
    text = on_terminal(status(resource("example.com/serial", device("x"))))
    rows = [line.split() for line in text.splitlines()[3:5]]
    assert rows == [["RESOURCE", "KUBELET", "UNHEALTHY"], ["example.com/serial", "serving", "0"]]
    assert "(no room for FOR, HEALTHY, HELD, FREE," in text


def dra(**others):
    slices = {"count": 1, "devices": 2, "right": True, "written": at("11:59:50"), "waits": None, "failure": None}
    claim = {"namespace": "d", "name": "c", "phase": "prepared", "since": at("11:59:00"), "pods": ["p"]}
    given = {"request": "r", "resource": R, "ids": ["x"], "devices": ["x"], "admin": False}
    usual = {
        "driver": "dra.example.com",
        "registration": {"state": "published", "since": at("11:58:00"), "registered": True, "failure": None},
        "resources": [R],
        "elsewhere": None,
        "withdrawn": False,
        "slices": {**slices, "pools": [{"name": "n/a", "left_out": []}]},
        "claims": [{**claim, "given": [given]}],
        "doubt": None,
        "refused": None,
        "api_server": {"url": "https://a", "failure": None},
    }
    return {**usual, **others}


def test_resources_that_change_their_front(capsys):
    switch = {
        "resources": [R],
        "state": "leaving-plugin",
        "since": at("11:59:00"),
        "because": "all that DRA needs is there",
        "waits_for": "the Node",
    }
    idle = {"resources": [], "claims": [], "switches": [switch], "doubt": {"since": None, "reason": "no matter"}}
    draw(status(resource(R), dra=dra(**idle)), whole=False)
    text = capsys.readouterr().out
    because = "leaves the device plugin for DRA for 1m, because all that DRA needs is there"
    assert f"{R} (front: auto): {because}\n" in text
    assert f"{R} waits for the Node\n" in text
    assert "no matter" not in text, "nothing needs DRA yet"


def test_the_front_for_dra(capsys):
    draw(status(resource(R), dra=dra()), whole=False)
    text = capsys.readouterr().out
    assert (
        "DRA driver dra.example.com: published for 2m; 1 slice with 2 devices, written 10s ago, claims: 1 prepared"
        in text
    )
    assert "d/c" not in text
    draw(status(resource(R), dra=dra()), whole=True)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("d/c")]
    assert line.split() == ["d/c", "prepared", "1m", R, "x", "p"]


def test_what_is_wrong_with_dra(capsys):
    failure = {"reason": "no", "since": at("11:59:00")}
    parts = dra()["slices"]
    for change, told in (
        ({"doubt": failure}, "no claim gets devices for 1m: no"),
        ({"refused": failure}, "the last claim wasn't served, 1m ago: no"),
        (
            {"api_server": {"url": "https://a", "failure": failure}},
            "the API server https://a doesn't answer for 1m: no",
        ),
        ({"slices": {**parts, "failure": failure}}, "slices aren't as they should be for 1m: no"),
        ({"slices": {**parts, "waits": "a list"}}, "slices aren't written yet: a list"),
        ({"elsewhere": "pid 7 has it"}, "pid 7 has it"),
        ({"withdrawn": True}, "published for 2m, withdrawn by the configuration; "),
    ):
        draw(status(resource(R), dra=dra(**change)), whole=False)
        assert told in capsys.readouterr().out


def test_dra_that_no_resource_needs_is_not_wrong(capsys):
    refused = {**dra()["registration"], "registered": False, "failure": "no handler registered"}
    draw(status(resource(R), dra=dra(registration=refused, resources=[], claims=[])), whole=False)
    assert "no handler" not in capsys.readouterr().out


def test_a_kubelet_that_knows_dra_alone(capsys):
    kubelet = {"there": True, "since": at("11:58:48"), "api": None, "release": None}
    draw(status(resource(R), kubelet=kubelet, dra=dra()), whole=False)
    assert "accepted no registration" not in capsys.readouterr().out


def test_a_device_that_a_claim_has(capsys):
    def held(**by):
        holder = {"namespace": "d", "pod": None, "pod_uid": None, "container": None, "claim": "c", **by}
        return device("x", held=True, held_since=at("11:59:00"), holders=[holder])

    for holder, told in ((held(), "claim d/c for 1m"), (held(pod="p", pod_uid="u"), "d/p (claim c) for 1m")):
        draw(status(resource(R, holder)), whole=True)
        assert told in capsys.readouterr().out
