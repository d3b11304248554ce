"""What check says of resources that are offered by DRA."""

import os
import sys
from dataclasses import replace

import pytest

from dpgateway import Device, Health
from dpgateway.cli import dra_fit
from dpgateway.cli.ask_drivers import DriverAnswer
from dpgateway.cluster.account import LONGEST
from tests.support.resources import configured

pytestmark = pytest.mark.usefixtures("fake_driver")

ENTRY = "name: example.com/a, driver: fake, options: {mode: list}, front: dra"
LONG = f"example.com/{'a' * 60}"


def checked(line, text, *flags, exit_code=0, **environment):
    config = line.config(f"dra: {{driver: dra.example.com}}\nresources:\n{text}\n")
    result = line("check", "--config", config, "--node-name", "n1", *flags, **environment)
    assert result.exit_code == exit_code, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("annotations: {a: b}", "annotations: has no effect by DRA"),
        ("cdi: never", "cdi: has no effect by DRA"),
        ("preference: packed", "preference: has no effect by DRA"),
        ("shares: {count: 2, ids: '{id}-{share}'}", "shares: shares.ids has no effect by DRA"),
        ("timeouts: {allocate: 20s}", "found 45s together, expected at most 44s"),
    ],
)
def test_keys_that_mean_something_else(line, keys, told):
    found = checked(line, f"- {{{ENTRY}, {keys}}}")
    assert told in found
    plain = ENTRY.replace(", front: dra", "")
    assert told not in checked(line, f"- {{{plain}, {keys}}}")


def test_fronts_that_are_mixed_in_a_pool(line):
    other = "name: example.com/b, driver: fake, options: {mode: list}, pool: p"
    assert "its pool has example.com/b on the device plugin" in checked(line, f"- {{{ENTRY}, pool: p}}\n- {{{other}}}")
    assert "its pool has" not in checked(line, f"- {{{ENTRY}, pool: q}}\n- {{{other}}}")
    assert "its pool has" not in checked(line, f"- {{{ENTRY}, pool: p}}\n- {{{other}, front: dra}}")


def test_a_name_that_is_longer_than_an_attribute(line):
    entry = ENTRY.replace("example.com/a", LONG)
    assert "a DeviceClass has to select the resource" in checked(line, f"- {{{entry}}}")


def test_a_path_that_is_too_long_for_a_socket(line):
    keys = f"- {{{ENTRY}}}\nkubelet: {{root_dir: /{'x' * 80}}}"
    assert "its socket has a path of" in checked(line, keys, exit_code=2)


def test_an_api_server_that_cannot_be_asked(line, tmp_path):
    without = {"KUBERNETES_SERVICE_HOST": "", "KUBERNETES_SERVICE_PORT": ""}
    assert "cluster.server: the API server is unknown" in checked(line, f"- {{{ENTRY}}}", **without)
    token = tmp_path / "token"
    keys = f"- {{{ENTRY}}}\ncluster: {{server: 'https://a:6443', token: {token}, ca: {tmp_path / 'ca'}}}"
    found = checked(line, keys)
    assert f"the token of the API server can't be read from {token}: No such file or directory\n" in found
    assert f"the certificates of the API server can't be read from {tmp_path / 'ca'}: No such file or dir" in found
    os.mkfifo(token)  # nobody will write into it
    os.mkfifo(tmp_path / "ca")
    found = checked(line, keys)
    assert f"can't be read from {token}: {token}: expected a regular file" in found
    assert f"can't be read from {tmp_path / 'ca'}: {tmp_path / 'ca'}: expected a regular file" in found
    token.unlink()
    (tmp_path / "ca").unlink()
    token.write_text("first")
    for size in (0, LONGEST + 1):  # of certificates the gateway has no limit
        (tmp_path / "ca").write_text("#" * size)
        assert "cluster." not in checked(line, keys)


def test_events_alone_need_the_api_server(line):
    plain = f"- {{{ENTRY.replace(', front: dra', '')}}}"
    without = {"KUBERNETES_SERVICE_HOST": "", "KUBERNETES_SERVICE_PORT": ""}
    assert "the API server is unknown" in checked(line, f"{plain}\ncluster: {{events: true}}", **without)
    assert "cluster." not in checked(line, plain, **without)


def test_events_need_the_client_of_the_api_server(line, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightkube", None)
    plain = f"- {{{ENTRY.replace(', front: dra', '')}}}"
    assert "cluster.events: the client of the API server isn't installed" in checked(
        line, f"{plain}\ncluster: {{events: true}}"
    )
    assert "the client" not in checked(line, plain)


def told(*devices, **config):
    answer = DriverAnswer(configured(front="dra", **config), devices)
    return [problem.hint for problem in dra_fit.of_devices([answer], "n1", "dra.example.com")]


def test_devices_and_attributes_that_slices_cannot_have():
    assert told(Device("a"), Device("b", Health.unhealthy("no"))) == []
    (text,) = told(Device("a", attributes={"path": "x" * 65}))
    assert "attribute 'path': expected at most 64 bytes, found 65" in text
    (text,) = told(*(Device(f"d{number}") for number in range(33)))
    assert "it has 33 devices, and a pod gets at most 32 by DRA" in text
    boards = [Device(str(n), hardware=tuple(f"board {i}" for i in range(70))) for n in range(2)]
    assert any("at most 64 behind" in text for text in told(*boards))


def test_joint_devices_are_apart_by_dra():
    first, second = (Device(f"3b:02.{n}", hardware=("char 240:1", f"pci {n}"), joint=True) for n in range(2))
    alone = Device("3b:02.2", hardware=("char 240:2", "pci 2"), joint=True)
    (text,) = told(first, second, alone)
    assert "3b:02.0, 3b:02.1 have char 240:1 in common: by DRA no claim gets two of them" in text
    assert told(first, alone, replace(second, joint=False)) == []


def test_the_rest_is_counted():
    device = Device("a", attributes={f"n{number}": "x" * 65 for number in range(9)})
    assert len(told(device)) == dra_fit.MOST + 1
    assert "and 4 more" in told(device)[-1]


def test_an_attribute_of_many_devices_is_one_warning():
    devices = [
        Device(f"d{n}", attributes={"object": "x" * (65 + n), **({"y": "z" * 70} if n == 9 else {})}) for n in range(10)
    ]
    first, second = told(*devices)
    assert first.endswith("device d0: attribute 'object': expected at most 64 bytes, found 65; so with 9 more")
    assert second.endswith("device d9: attribute 'y': expected at most 64 bytes, found 70")


def test_resources_of_a_pool_are_judged_together():
    one = DriverAnswer(configured(name="example.com/a", pool="p", front="dra"), (Device("x"),))
    other = replace(one, resource=configured(name="example.com/b", pool="p", front="dra"))
    assert [*dra_fit.of_devices([one, other], "n1", "dra.example.com")] == []


def test_check_asks_the_drivers(line):
    config = "driver: simulated, options: {count: 33}, front: dra"
    found = checked(line, f"- {{name: example.com/a, {config}}}", "--devices")
    assert "it has 33 devices, and a pod gets at most 32 by DRA" in found
