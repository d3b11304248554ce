"""What is said to be wrong with the front for DRA, and what to do about it."""

from dataclasses import replace

import pytest

from dpgateway.resource.published import (
    ApiServerStatus,
    ClaimStatus,
    DraFigures,
    DraStatus,
    GivenStatus,
    PoolStatus,
    SlicesStatus,
    SwitchStatus,
)
from dpgateway.resource.standing import Failure, Standing
from dpgateway.status import dra_troubles
from dpgateway.status.dra_troubles import of_dra, of_moved
from dpgateway.status.troubles import LOOK_AT_KUBELET, ONE_GATEWAY
from dpgateway.web.dra_series import DRA

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:02:00Z"
NAME = "example.com/a"
STANDING = Standing("dra", "published", THEN, registered=True, streaming=True, listed=True, api="v1")
POOL = PoolStatus("n/example.com/a", 1, 1, 2, None, (), ())
SLICES = SlicesStatus(1, 2, True, THEN, 0, False, None, None, None, (POOL,))
CLAIM = ClaimStatus("d", "c", "u", "prepared", THEN, ("p",), (GivenStatus("r", NAME, ("x",), ("x",), False),))
GOOD = DraStatus(
    "dra.example.com", STANDING, (NAME,), None, False, SLICES, (CLAIM,), None, None, ApiServerStatus("https://a", None)
)
UNREGISTERED = replace(STANDING, registered=False, state="waiting")


def refused(text, code=None, **changes):
    return replace(GOOD, slices=replace(SLICES, right=False, failure=Failure(text, THEN), code=code, **changes))


def away(since):
    return replace(GOOD, api_server=ApiServerStatus("https://a", Failure("no answer", since)))


def found(dra, *, kubelet=True, now=NOW, only=""):
    return [(one.level, one.resource, one.reason, one.advice) for one in of_dra(dra, kubelet, now, only)]


def test_none_while_all_is_well():
    assert found(GOOD) == []


@pytest.mark.parametrize(
    ("dra", "level", "reason", "advice"),
    [
        (
            replace(GOOD, registration=UNREGISTERED),
            "error",
            "the kubelet hasn't registered DRA driver dra.example.com yet",
            dra_troubles.FIND_REGISTRY,
        ),
        (
            replace(GOOD, registration=replace(UNREGISTERED, failure="no handler registered for plugin type: X")),
            "error",
            "the kubelet refuses DRA driver dra.example.com: no handler registered for plugin type: X",
            dra_troubles.NO_DRA,
        ),
        (
            replace(GOOD, registration=replace(UNREGISTERED, failure="why not")),
            "error",
            "the kubelet refuses DRA driver dra.example.com: why not",
            LOOK_AT_KUBELET,
        ),
        *(
            (
                replace(GOOD, registration=replace(UNREGISTERED, state="unready", failure=why)),
                "error",
                f"DRA can't be served: {why}",
                advice,
            )
            for why, advice in (
                ("/a/plugins_registry: No such file or directory", dra_troubles.FIND_REGISTRY),
                ("the disk is full", None),
            )
        ),
        (
            replace(GOOD, registration=UNREGISTERED, elsewhere="pid 7 has it"),
            "warning",
            "DRA driver dra.example.com: pid 7 has it",
            ONE_GATEWAY,
        ),
        (away(THEN), "warning", "the API server doesn't answer: no answer", dra_troubles.API_AWAY),
        (refused("no", 401), "error", "slices aren't as they should be: no", dra_troubles.RENEW_ACCOUNT),
        (refused("no", 403), "error", "slices aren't as they should be: no", dra_troubles.RIGHTS),
        (
            refused("list: found status 403: no"),
            "error",
            "slices aren't as they should be: list: found status 403: no",
            dra_troubles.RIGHTS,
        ),
        (refused("no", 422), "error", "slices aren't as they should be: no", dra_troubles.INVALID_SLICE),
        (
            refused("again", contested=True),
            "error",
            "slices aren't as they should be: again",
            dra_troubles.CONTEST.format(driver="dra.example.com"),
        ),
        (
            replace(GOOD, slices=replace(SLICES, pools=(replace(POOL, refused="it drops capacity"),))),
            "error",
            "it drops capacity",
            dra_troubles.GATES,
        ),
        (
            replace(GOOD, slices=replace(SLICES, pools=(replace(POOL, left_out=("x isn't published",)),))),
            "warning",
            "pool n/example.com/a: not all of its devices are in slices: x isn't published",
            None,
        ),
        (replace(GOOD, doubt=Failure("a file", THEN)), "error", "no claim gets devices: a file", dra_troubles.DOUBT),
        (
            replace(GOOD, refused=Failure("worn out", THEN)),
            "warning",
            "the last claim that the kubelet asked for: worn out",
            dra_troubles.REFUSED_CLAIM,
        ),
        (
            replace(GOOD, refused=Failure("get resourceclaims c: found status 403: forbidden", THEN)),
            "warning",
            "the last claim that the kubelet asked for: get resourceclaims c: found status 403: forbidden",
            dra_troubles.RIGHTS,
        ),
    ],
)
def test_what_is_wrong_and_what_to_do(dra, level, reason, advice):
    assert found(dra) == [(level, "", reason, advice)]


def test_claims_of_a_resource_that_is_not_offered_any_more():
    text = "not offered by DRA any more, but claim d/c (pod p) has x"
    assert found(replace(GOOD, resources=())) == [("warning", NAME, text, dra_troubles.AWAIT_CLAIM)]
    assert found(replace(GOOD, resources=()), only="example.com/b") == []
    gone = replace(GOOD, resources=(), claims=(replace(CLAIM, gone=True),))
    assert "(pod p, gone: the claim ends once no container of it runs)" in found(gone)[0][2]


def test_without_a_kubelet_that_is_the_trouble():
    assert found(replace(GOOD, registration=UNREGISTERED), kubelet=False) == []


def test_a_short_absence_of_the_api_server_and_a_fresh_start():
    assert found(away("2026-01-01T00:01:30Z")) == []
    assert [one[0] for one in found(replace(GOOD, doubt=Failure("not known yet", "2026-01-01T00:01:30Z")))] == [
        "warning"
    ]


def test_an_api_server_that_is_away_is_told_once():
    dra = replace(refused("no answer"), api_server=away(THEN).api_server)
    assert [one[2] for one in found(dra)] == ["the API server doesn't answer: no answer"]


def test_errors_first():
    dra = replace(GOOD, registration=UNREGISTERED, refused=Failure("no", THEN), api_server=away(THEN).api_server)
    assert [one[0] for one in found(dra)] == ["error", "warning", "warning"]


def test_devices_that_containers_have_by_the_device_plugin():
    (one,) = of_moved({NAME: [("x", "d/p (c)")], "example.com/b": []})
    assert (one.resource, one.reason) == (NAME, "offered by DRA now, but d/p (c) holds x by the device plugin")


def switched(state, **changes):
    """A node with ``front: auto``, without claims and resources by DRA."""
    one = SwitchStatus(NAME, (NAME,), state, THEN, "it is so", "the Node", (), (), None, flaps=False)
    return replace(GOOD, resources=(), claims=(), switches=(replace(one, **changes),))


@pytest.mark.parametrize("state", ["plugin", "dra"])
def test_a_front_that_is_reached_is_no_trouble(state):
    assert found(switched(state)) == []


@pytest.mark.parametrize("state", ["leaving-plugin", "leaving-dra"])
def test_a_change_of_front_that_takes_long(state):
    text = "neither front offers it, because it waits for the Node"
    assert found(switched(state)) == [("warning", NAME, text, dra_troubles.SWITCH)]
    assert found(switched(state), now="2026-01-01T00:00:59Z") == []


def test_a_node_on_dra_that_may_not_be_able_to():
    unsure = switched("dra", unknown=("whether containerd 1.7.20 handles CDI names",))
    assert found(unsure) == [("warning", NAME, "it is so", dra_troubles.UNSURE)]
    assert found(replace(unsure, registration=UNREGISTERED)) == [], "the kubelet restarts"
    assert found(replace(unsure, api_server=away(NOW).api_server)) == []
    assert found(switched("plugin", unknown=("whether it can",))) == []


def test_a_front_that_changes_too_often():
    assert found(switched("plugin", flaps=True)) == [("warning", NAME, "it is so", dra_troubles.FLAPS)]


def registered(dra):
    """What the metric says, on which an alert looks."""
    (row,) = [one for one in DRA if one.name == "dpgateway_dra_registered"]
    return [number for _, number in row.samples(DraFigures(dra))]


def test_a_node_that_stays_on_the_device_plugin_needs_no_registration():
    without = {"registration": replace(UNREGISTERED, failure="no handler registered for plugin type: X")}
    assert found(replace(switched("plugin"), **without)) == []
    never = replace(GOOD, registration=without["registration"], resources=(), claims=())  # all: front: deviceplugin
    assert (found(never), registered(never), registered(GOOD)) == ([], [], [1])
    assert found(replace(switched("plugin"), **without, claims=(CLAIM,)))[0][0] == "error", "its claims have to end"


def test_claims_on_a_node_that_can_do_no_dra_any_more():
    dra = replace(switched("plugin", unable="kubelet v1.34.0 can't"), claims=(CLAIM,))
    claim = "claim d/c (pod p) has x, and kubelet v1.34.0 can't"
    text = f"containers that start again would run without their devices: {claim}"
    assert found(dra) == [("error", NAME, text, dra_troubles.AT_RISK)]
