"""What preflight asks an API server about a change of the front."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dpgateway.cli import front_facts
from dpgateway.config import ClusterSettings, Configuration, DraSettings, KubeletSettings
from dpgateway.dra.claims.records import ClaimRecord, Given, Phase
from dpgateway.preflight import DevicesOfClaim
from dpgateway_simulator.apiserver import SimulatedApiServer

NAME, DRIVER = "example.com/thing", "dra.example.com"


@pytest.fixture
async def api():
    simulated = SimulatedApiServer()
    await simulated.up()
    status = {"nodeInfo": {"kubeletVersion": "v1.36.2", "containerRuntimeVersion": "containerd://2.0.1"}}
    simulated.store.create("nodes", "", {"metadata": {"name": "n1"}, "status": status})
    for name, resource in ((NAME, NAME), ("example.com/other", NAME)):
        text = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].resource == "{resource}"'
        spec = {"extendedResourceName": name, "selectors": [{"cel": {"expression": text}}]}
        simulated.store.create("deviceclasses", "", {"metadata": {"name": name.replace("/", ".")}, "spec": spec})
    yield simulated
    await simulated.down()


@pytest.fixture
def configuration(api, tmp_path):
    (tmp_path / "token").write_text("first")
    cluster = ClusterSettings(server=api.url, token=tmp_path / "token")
    dra = DraSettings(DRIVER)
    return Configuration((), KubeletSettings(), tmp_path / "state", dra=dra, cluster=cluster)


async def test_all_is_there(configuration):
    found = await front_facts.look(configuration, "n1", "dra")
    assert (found.driver, found.kubelet) == (DRIVER, "v1.36.2")
    classes = found.classes or {}
    assert set(classes) == {NAME, "example.com/other"}
    assert classes[NAME] == ""
    assert "may select other devices" in classes["example.com/other"]
    assert found.runtime == "containerd://2.0.1"
    assert (found.served, found.denied, found.unasked) == (True, (), ())


async def test_each_right_that_is_missing(configuration, api):
    api.forbidden |= {("delete", "resourceslices"), ("get", "nodes")}
    found = await front_facts.look(configuration, "n1", "dra")
    assert found.denied == ("delete resourceslices", "get nodes")
    assert (found.kubelet, found.unasked) == ("", ())


async def test_classes_that_may_not_be_listed(configuration, api):
    api.forbidden.add(("list", "deviceclasses"))
    found = await front_facts.look(configuration, "n1", "dra")
    assert (found.classes, found.served) == (None, None)
    assert (found.denied, found.unasked) == (("list deviceclasses",), ())


async def test_classes_that_arent_listed(configuration, api):
    api.faults.append(("GET deviceclasses", 500, {}))
    found = await front_facts.look(configuration, "n1", "dra")
    assert (found.classes, found.served) == (None, None)
    assert "which classes there are" in found.unasked[0]


async def test_no_answer(configuration, api):
    await api.down()
    found = await front_facts.look(configuration, "n1", "dra")
    assert len(found.unasked) == 1
    assert (found.classes, found.denied) == (None, ())
    wrong = replace(configuration, cluster=ClusterSettings(server=api.url, token=configuration.state_dir / "none"))
    assert "can't be read" in (await front_facts.look(wrong, "n1", "dra")).unasked[0]


def test_claims_that_have_devices(tmp_path):
    assert front_facts.claimed(tmp_path) == ((), "")
    folder = tmp_path / "dra" / "claims"
    folder.mkdir(parents=True)
    given = Given("r", NAME, "n1/thing", (("a", ""),), ("a",))
    record = ClaimRecord("uid-1", "default", "c", Phase.PREPARED, "boot", (given,), (("u", "p"),))
    watches = Given("r", "example.com/other", "n1/other", (("b", ""),), (), admin=True)
    ends = ClaimRecord("uid-3", "default", "d", Phase.ENDING, "boot", (watches,))
    for one in (record, ends):
        (folder / f"{one.uid}.json").write_text(one.to_json())
    (folder / "uid-2.json").write_text("{")
    found, unread = front_facts.claimed(tmp_path)
    assert found == (
        DevicesOfClaim("claim default/c", NAME, ("a",), (("u", "p"),)),
        DevicesOfClaim("claim default/d", "example.com/other", ending=True),
    )
    assert unread.startswith(f"{folder}/uid-2.json: ")


def test_a_directory_that_is_a_file(tmp_path):
    (tmp_path / "dra").mkdir()
    (tmp_path / "dra/claims").touch()
    assert "Not a directory" in front_facts.claimed(tmp_path)[1]


def test_a_record_that_is_a_pipe(tmp_path: Path) -> None:
    """Nobody writes to it, so whoever opened it would wait for ever."""
    folder = tmp_path / "dra" / "claims"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "uid-1.json")
    assert "expected a regular file" in front_facts.claimed(tmp_path)[1]
