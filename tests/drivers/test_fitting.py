"""What can never be given is listed Unhealthy, with the reason."""

import pytest

from dpgateway import Allocation, Busy, Device, DeviceNode, DeviceUnavailable, Health, Mount
from dpgateway.deviceplugin.api import unfit
from dpgateway.drivers import answers
from dpgateway.drivers.listing import Fitting
from dpgateway.kit.observable import Observable
from tests.support.resources import configured, scripted

A, B = Device("a", hardware=("char 1:3",)), Device("b")
SICK = Device("sick", Health.unhealthy("no power"))
NODE = Allocation(device_nodes=(DeviceNode("/dev/a"),))


class Previewing:
    """Counts what it is asked."""

    def __init__(self, preview):
        self._preview = preview
        self.asked: list[object] = []

    def preview(self, device):
        self.asked.append(device)
        return self._preview(device)


class Unpreviewed:
    pass


def fitting(**config):
    return Fitting(unfit, Observable(configured(driver_class=scripted(), **config)))


def reasons(devices):
    return [device.health.reason for device in devices]


def twice(_):
    return Allocation(mounts=(Mount("/a", "/x"), Mount("/b", "/x")))


def unavailable(_):
    raise DeviceUnavailable("it has no firmware")


def bug(_):
    raise KeyError("x")


@pytest.mark.parametrize(
    ("preview", "reason"),
    [
        (twice, "preview() raised ValueError: Allocation: the container path '/x' is used twice"),
        (unavailable, "it has no firmware"),
        (bug, "preview() raised KeyError: 'x'"),
        (lambda _: None, "preview() returned None, expected an Allocation"),
        (lambda _: Allocation(env={"E": "x" * 4_200_000}), "the answer takes 42000"),
    ],
    ids=["one path twice", "unavailable", "a bug", "nothing", "too large"],
)
def test_a_wrong_preview_is_unhealthy(preview, reason):
    found = fitting().judged(Previewing(preview), (A, SICK))
    assert found[0].health.reason.startswith(f"it can't be given: {reason}")
    assert found[1] is SICK
    assert (found[0].id, found[0].hardware, answers.own(found)) == ("a", ("char 1:3",), (A, SICK))


def test_what_the_configuration_adds_counts():
    over = Mount("/etc", "/dev/./a")
    (found,) = fitting(mounts=(over,)).judged(Previewing(lambda _: NODE), (A,))
    assert found.health.reason == (
        "it can't be given: mounts[0].container_path is '/dev/./a', which is the path of its device node /dev/a; "
        "expected another one"
    )
    (found,) = fitting(env={"E": "x" * 4_200_000}).judged(Previewing(lambda _: NODE), (A,))
    assert "the answer takes 42000" in found.health.reason
    listed = (A, B)
    assert fitting(mounts=(Mount("/etc", "/x"),)).judged(Previewing(lambda _: NODE), listed) is listed


def test_a_missing_mount_makes_all_devices_unhealthy(tmp_path):
    one = fitting(mounts=(Mount("/etc", "/x"), Mount(str(tmp_path / "no/file"), "/y")))
    why = f"it can't be given: mounts[1]: {tmp_path}/no/file isn't there on this host, and is to be mounted"
    listed = (A, SICK, B)
    for driver in Unpreviewed(), Previewing(lambda _: NODE):
        assert reasons(one.judged(driver, listed)) == [why, "no power", why]
    (tmp_path / "no").mkdir()
    (tmp_path / "no/file").symlink_to("/no/such/file")
    assert reasons(one.judged(Unpreviewed(), listed)) == [why, "no power", why]
    (tmp_path / "no/file").unlink()
    (tmp_path / "no/file").touch()
    assert one.judged(Unpreviewed(), listed) is listed


def test_a_pod_knows_nothing_of_the_hosts_files(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    listed = (A,)
    assert fitting(mounts=(Mount("/no/such/file", "/y"),)).judged(Unpreviewed(), listed) is listed


def test_only_what_is_listed_anew_is_asked_again():
    driver, config = Previewing(lambda _: NODE), Observable(configured())
    one = Fitting(unfit, config)
    one.judged(driver, (A, SICK, B))
    one.judged(driver, (A, SICK, B))
    assert driver.asked == [A, B]
    other = Device("b")
    one.judged(driver, (A, other))
    assert driver.asked[2:] == [other]
    config.set(configured(env={"A": "1"}))
    one.judged(driver, (A, other))
    assert driver.asked[3:] == [A, other]


def test_unfit_devices_are_judged_again():
    lacking = {"b"}
    driver, one = Previewing(lambda device: unavailable(device) if device.id in lacking else NODE), fitting()
    first, again = one.judged(driver, (A, B)), one.judged(driver, (A, B))
    assert reasons(first) == [None, "it can't be given: it has no firmware"]
    assert first[1] is again[1], "what is the same is no news"
    lacking.clear()
    assert reasons(one.judged(driver, (A, B))) == [None, None]
    assert driver.asked == [A, B, B, B]


def test_another_configuration_is_judged_by_itself():
    config = Observable(configured(mounts=(Mount("/etc", "/dev/a"),)))
    driver, one = Previewing(lambda _: NODE), Fitting(unfit, config)
    assert reasons(one.judged(driver, (A,))) != [None]
    config.set(configured())
    assert reasons(one.judged(driver, (A,))) == [None]


def test_preview_gets_the_drivers_own_object():
    class Own(Device):
        pass

    (copy,) = answers.devices([mine := Own("own")])
    driver = Previewing(lambda device: unavailable(device) if device is mine else NODE)
    found = fitting().judged(driver, (copy,))
    assert reasons(found) == ["it can't be given: it has no firmware"]
    assert answers.own(found)[0] is mine


def test_a_busy_preview_is_no_answer_either():
    def busy(_):
        raise Busy("later")

    assert reasons(fitting().judged(Previewing(busy), (A,))) == ["it can't be given: later"]
