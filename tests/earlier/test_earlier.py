"""Configurations and files of state_dir, as each earlier form of them was written, are read.

A folder has one file for each form, the newest last; the files of `state_dir` were written by gateways of their time.
A release adds a file for each form that it introduces, and changes none. The last tests fail until it has.
"""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dpgateway.cdi.producer import recorded
from dpgateway.config.values import (
    ClusterSettings,
    DraSettings,
    KubeletSettings,
    ResourceKeys,
    RuntimeSettings,
    Shares,
    Timeouts,
    WebSettings,
)
from dpgateway.daemon.last_good import LastGoodFile
from dpgateway.model import DeviceNode, Mount
from dpgateway.resource.front import Unreleased
from dpgateway.resource.journal import Journal, to_json
from tests.support.configurations import complete, load
from tests.support.drivers import find

HERE = Path(__file__).resolve().parent
SERIAL = "example.com/serial"
CONFIGURATIONS, JOURNALS, RECORDS, KEPT = (
    sorted(HERE.glob(pattern)) for pattern in ("configuration/*", "journal/*", "cdi/*/*", "last_good/*")
)


def ids(path):
    return str(path.relative_to(HERE))


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=ids)
def test_a_configuration(path):
    document = load(path)
    serial, fuse = complete(document, find(document.drivers)).resources
    assert (serial.name, fuse.name, fuse.shares.count, fuse.shares.distinct) == (
        SERIAL,
        "example.com/fuse",
        20,
        "prefer",
    )


@pytest.mark.parametrize("path", JOURNALS, ids=ids)
def test_a_journal(path, tmp_path):
    """What a form doesn't have is unknown."""
    journal = Journal(tmp_path, Path("/var/lib/kubelet/device-plugins"), SERIAL)
    journal.path.write_bytes(path.read_bytes())
    written = json.loads(path.read_bytes())["claims"]["ttyUSB0::1"]
    known: dict[str, Any] = {
        "kubelet": "26:3:1700000000123456",
        "pods": frozenset(["b6b2d3e4-1111-4222-8333-444455556666"]),
        "hardware": frozenset(["char 188:0"]),
        "since": 1700000100,
        "device": "ttyUSB0",
        "driver": "chardev",
        "boot": "0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0f9",
    }
    expected = Unreleased(**{key: value for key, value in known.items() if key in written})
    assert journal.load() == {"ttyUSB0::1": expected, "ttyUSB1": Unreleased("")}


@pytest.mark.parametrize("path", RECORDS, ids=ids)
def test_a_record_of_a_spec(path):
    found = recorded(path.read_text(), path.name)
    node, mount = DeviceNode("/dev/ttyUSB0"), Mount("/etc/serial", "/etc/serial")
    assert (found.given.resource, found.given.ids, found.given.env) == (SERIAL, ("ttyUSB0",), {"PORT": "/dev/ttyUSB0"})
    assert (found.given.device_nodes, found.given.mounts) == ((node,), (mount,))
    assert found.now is not None


@pytest.mark.parametrize("path", KEPT, ids=ids)
def test_a_last_good_configuration(path, tmp_path):
    file = LastGoodFile(tmp_path, Path("/etc/dpgateway/config.yaml"), "node")
    file.path.write_bytes(path.read_bytes())
    last = file.load()
    assert last is not None
    (serial,) = complete(last.document, find(last.document.drivers)).resources
    assert (last.time, serial.name, serial.shares.count) == ("2026-11-26T16:21:27Z", SERIAL, 2)


@pytest.mark.parametrize(
    "kind",
    [ResourceKeys, Shares, Timeouts, KubeletSettings, RuntimeSettings, WebSettings, DraSettings, ClusterSettings],
)
def test_the_newest_configuration_has_every_key(kind):
    text = CONFIGURATIONS[-1].read_text()
    assert [key.name for key in fields(kind) if f"{key.name}:" not in text] == []


def test_the_newest_journal_is_as_it_is_written_now():
    written = json.loads(to_json({"a": Unreleased("")}, SERIAL))
    newest = json.loads(JOURNALS[-1].read_bytes())
    assert (newest.keys(), newest["claims"]["ttyUSB1"].keys()) == (written.keys(), written["claims"]["a"].keys())
    assert newest["version"] == written["version"]


def test_the_newest_record_is_as_it_is_written_now():
    newest = recorded(RECORDS[-1].read_text(), RECORDS[-1].name)
    assert newest.to_json() == RECORDS[-1].read_text().strip()


def test_the_newest_kept_configuration_is_as_it_is_written_now(tmp_path):
    newest = json.loads(KEPT[-1].read_bytes())
    file = LastGoodFile(tmp_path, Path("/etc/dpgateway/config.yaml"), "node")
    file.save({key: newest[key] for key in ("node", "configuration")})
    assert json.loads(file.path.read_bytes()) | {"kept": newest["kept"]} == newest
