"""The gateway's own specs are written whole, made again where they are missing, and nobody else's is touched."""

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dpgateway.cdi.own import OwnSpecs
from dpgateway.errors import CdiError
from dpgateway.model import Allocation, DeviceNode, Mount
from tests.support.counting import leading_to
from tests.support.full import small_disk
from tests.support.logs import complaint
from tests.support.specs import spec, write

R = "example.com/thing"
FULL = Allocation({"A": "1"}, (DeviceNode("/dev/null"),), (Mount("/a", "/a"),), {"n": "1"}, ("v.example/c=d",))


@pytest.fixture
def specs(tmp_path, run, complaints):
    return OwnSpecs(tmp_path / "state", run, tmp_path / "dp", complaint(complaints))


def files(run):
    return sorted(path.name for path in run.iterdir()) if run.exists() else []


def test_an_allocation_becomes_the_first_name(specs, run):
    given = specs.write(R, ("a",), FULL)
    (one,) = specs.all()
    assert given == Allocation(annotations={"n": "1"}, cdi_devices=(one.given.name, "v.example/c=d"))
    assert files(run) == [one.spec.name]
    document = json.loads(one.spec.read_text())
    (device,) = document["devices"]
    assert f"{document['kind']}={device['name']}" == one.given.name
    assert one.spec.stat().st_mode & 0o777 == one.record.stat().st_mode & 0o777 == 0o600


def test_the_same_grant_rewrites_no_spec(specs):
    again = specs.write(R, ("a",), FULL)
    (before,) = specs.all()
    written = before.spec.stat()
    assert specs.write(R, ("a",), FULL) == again
    (after,) = specs.all()
    assert (after.spec.stat().st_ino, after.spec.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    assert specs.write(R, ("b",), FULL) != again


def test_what_a_spec_would_say_nothing_of_has_none(specs, run):
    nothing = Allocation(annotations={"n": "1"}, cdi_devices=("v.example/c=d",))
    assert specs.write(R, ("a",), nothing) == nothing
    assert files(run) == []


def test_a_missing_or_altered_spec_is_repaired(specs):
    for change in (lambda path: path.unlink(), lambda path: path.write_bytes(b"\xff{")):
        specs.write(R, ("a",), FULL)
        (one,) = specs.all()
        text = one.spec.read_text()
        change(one.spec)
        specs.keep([one])
        assert one.spec.read_text() == text
    one.spec.unlink()
    one.spec.parent.rmdir()  # as a reboot leaves it
    specs.keep([one])
    assert one.spec.read_text() == text


def test_a_changed_link_changes_the_spec(specs, tmp_path):
    link = tmp_path / "link"
    for target in ("/dev/null", "/dev/zero"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        specs.write(R, ("a",), Allocation(device_nodes=(DeviceNode(str(link), "/dev/x"),)))
        (one,) = specs.all()
        specs.keep([one])
        (device,) = json.loads(one.spec.read_text())["devices"]
        assert device["containerEdits"]["deviceNodes"][0]["hostPath"] == target


ELSEWHERE = replace(FULL, device_nodes=(DeviceNode("/dev/zero", "/dev/null"),), env={"A": "2"})


def paths(one):
    (device,) = json.loads(one.spec.read_text())["devices"]
    return [node.get("hostPath", node["path"]) for node in device["containerEdits"]["deviceNodes"]]


def test_a_name_leads_to_where_its_hardware_is_now(specs, tmp_path, run, complaints):
    specs.write(R, ("a",), FULL)
    (stale,) = specs.all()
    assert specs.renew([stale.given.name, "v.example/c=d"], ELSEWHERE) == 1
    assert specs.renew([stale.given.name], ELSEWHERE) == 0
    assert paths(stale) == ["/dev/zero"]
    another = OwnSpecs(tmp_path / "state", run, tmp_path / "dp", complaint(complaints))
    (one,) = another.all()
    assert (one.given, one.date) == (stale.given, stale.date), "it is the same spec, given when it was given"
    one.spec.unlink()
    for each in (specs, another):
        each.keep([stale])  # looked at before it was made anew
        assert paths(one) == ["/dev/zero"]
    specs.write(R, ("a",), FULL)  # its hardware is back, and given once more
    assert paths(one) == ["/dev/null"]


def test_a_spec_is_removed_while_its_hardware_is_away(specs, run):
    specs.write(R, ("a",), FULL)
    (one,) = specs.all()
    assert specs.renew([one.given.name], None) == 1
    specs.keep(specs.all())
    assert files(run) == []
    assert specs.renew([one.given.name], FULL) == 1
    assert paths(one) == ["/dev/null"]
    assert "now" not in one.record.read_text(), "an older gateway can read it"


def test_a_removed_name_cannot_be_renewed(specs):
    specs.write(R, ("a",), FULL)
    (one,) = specs.all()
    specs.remove([one])
    with pytest.raises(CdiError, match="was removed"):
        specs.renew([one.given.name], ELSEWHERE)
    one.record.write_text("{}")
    with pytest.raises(CdiError, match="not a record that a gateway wrote"):
        specs.renew([one.given.name], ELSEWHERE)


def test_only_specs_not_granted_again_are_removed(specs, run):
    others = write(run / "vendor.json", spec(a={}))
    specs.write(R, ("a",), FULL)
    before = specs.all()
    os.utime(before[0].record, (1, 1))
    assert specs.remove(before) == 0  # it was given again since somebody looked
    over = specs.all()
    assert specs.remove(over) == 1
    assert specs.remove(over) == 0
    assert specs.all() == ()
    assert files(run) == [others.name]


def test_the_specs_of_some_names_are_withdrawn(specs, run):
    for id_ in "ab":
        specs.write(R, (id_,), FULL)
    first, second = specs.all()
    specs.withdraw([first.given.name, "v.example/c=d"])
    assert specs.all() == (second,)
    assert files(run) == [second.spec.name]
    specs.withdraw([first.given.name])  # harmless
    second.record.write_text("{}")
    with pytest.raises(CdiError, match="not a record that a gateway wrote"):
        specs.withdraw([second.given.name])


def test_other_kubelets_and_broken_records_stay(specs, tmp_path, run, complaints):
    other = OwnSpecs(tmp_path / "state", run, tmp_path / "other", complaint(complaints))
    other.write(R, ("a",), FULL)
    specs.write(R, ("a",), FULL)
    (ours,), (theirs,) = specs.all(), other.all()
    assert ours.spec != theirs.spec
    ours.record.write_text("{")
    for _ in range(2):
        assert specs.all() == ()
    assert [text.partition(": ")[0] for text in complaints] == [str(ours.record)]
    assert files(run) == sorted([ours.spec.name, theirs.spec.name])


@pytest.mark.parametrize("damaged", ["{", "[" * 100_000, '"now": 5', '"now": [1]'], ids=lambda text: text[:10])
def test_a_damaged_record_stays_and_is_logged_once(specs: OwnSpecs, complaints: list[str], damaged: str) -> None:
    """Whoever looks at the records must go on: else no gateway could start."""
    specs.write(R, ("a",), FULL)
    (one,) = specs.all()
    said = one.record.read_text().removesuffix("}")
    one.record.write_text(f"{said}, {damaged}}}" if "now" in damaged else damaged)
    for _ in range(2):
        assert specs.all() == ()
    assert [text.partition(": ")[0] for text in complaints] == [str(one.record)]
    with pytest.raises(CdiError, match="not a record that a gateway wrote"):
        specs.renew([one.given.name], FULL)
    assert one.spec.exists()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_a_record_that_is_no_file_is_logged_once(specs, complaints, make):
    specs.write(R, ("a",), FULL)
    (one,) = specs.all()
    record = one.record.with_name(f"dpgateway-{'0' * 8}.json")
    make(record)
    for _ in range(3):
        assert specs.all() == (one,)
    assert not leading_to(record)
    assert [text.partition(": ")[0] for text in complaints] == [str(record)]


def test_a_pipe_in_place_of_a_spec_is_replaced(specs):
    specs.write(R, ("a",), FULL)
    (one,) = specs.all()
    text = one.spec.read_text()
    one.spec.unlink()
    os.mkfifo(one.spec)
    specs.keep([one])
    assert one.spec.read_text() == text


@pytest.mark.parametrize("now", [None, ELSEWHERE], ids=["away", "elsewhere"])
def test_a_spec_that_can_not_be_renewed_goes(
    tmp_path: Path, run: Path, complaints: list[str], now: Allocation | None
) -> None:
    """As with a full disk: it may lead to another device by now. It is back as soon as its hardware is."""
    with small_disk(tmp_path / "state") as disk:
        specs = OwnSpecs(tmp_path / "state", run, tmp_path / "dp", complaint(complaints))
        specs.write(R, ("a",), FULL)
        (one,) = specs.all()
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            specs.renew([one.given.name], now)
        another = OwnSpecs(tmp_path / "state", run, tmp_path / "dp", complaint(complaints))
        for each in (specs, another):  # also after a restart
            each.keep(each.all())
            assert files(run) == []
        another.renew([one.given.name], FULL)
        for each in (specs, another):
            each.keep(each.all())
            assert paths(one) == ["/dev/null"]
        disk.free()
        specs.renew([one.given.name], now)
        specs.keep(specs.all())
        assert [paths(each) for each in specs.all() if each.spec.exists()] == ([] if now is None else [["/dev/zero"]])


def test_a_link_in_place_of_a_spec_is_replaced(specs: OwnSpecs, tmp_path: Path) -> None:
    """What it leads to stays as it is."""
    specs.write(R, ("a",), FULL)
    (one,) = specs.all()
    text = one.spec.read_text()
    (tmp_path / "elsewhere").write_text("{}")
    one.spec.unlink()
    one.spec.symlink_to(tmp_path / "elsewhere")
    specs.keep([one])
    assert (one.spec.is_symlink(), one.spec.read_text()) == (False, text)
    assert (tmp_path / "elsewhere").read_text() == "{}"


def test_a_failed_write_leaves_nothing(tmp_path, complaints):
    (tmp_path / "file").write_text("")
    blocked = OwnSpecs(tmp_path / "state", tmp_path / "file" / "cdi", tmp_path / "dp", complaint(complaints))
    with pytest.raises(CdiError, match=r"the CDI spec .*/file/cdi/dpgateway-\w+\.json, .* can't be written: Not a dir"):
        blocked.write(R, ("a",), FULL)
    blocked = OwnSpecs(tmp_path / "file", tmp_path / "run", tmp_path / "dp", complaint(complaints))
    with pytest.raises(CdiError, match="can't be written"):
        blocked.write(R, ("a",), FULL)
    assert files(tmp_path / "run") == []


def test_a_spec_too_long_to_read_is_refused(specs, run):
    with pytest.raises(CdiError, match="would have more than 1048576 bytes"):
        specs.write(R, ("a",), Allocation({"A": "a" * 1_100_000}))
    assert files(run) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is told apart from others")
def test_a_directory_others_may_write_is_refused(specs, run):
    run.mkdir()
    run.chmod(0o777)
    with pytest.raises(CdiError, match="expected only root to own it and to write it"):
        specs.write(R, ("a",), FULL)
    assert files(run) == []


def test_leftover_temporary_files_are_swept(specs, run):
    specs.write(R, ("a",), FULL)
    (one,) = specs.all()
    young, old, folder = [run / f".dpgateway-{name}" for name in ("young", "old", "folder")]
    for path in (young, old):
        path.write_text("{")
    folder.mkdir()
    for path in (old, folder):
        os.utime(path, (time.time() - 100,) * 2)
    specs.sweep()
    assert files(run) == sorted([young.name, folder.name, one.spec.name])


def test_two_gateways_leave_whole_specs(specs, tmp_path, run, complaints):
    other = OwnSpecs(tmp_path / "state", run, tmp_path / "dp", complaint(complaints))
    wrong = []

    def work(mine):
        for _ in range(8):
            mine.write(R, ("a",), FULL)
            for path in run.iterdir():
                try:
                    json.loads(path.read_text() if path.suffix == ".json" else "{}")
                except FileNotFoundError:
                    pass
                except ValueError as error:
                    wrong.append(error)
            mine.remove(mine.all())

    both = [threading.Thread(target=work, args=(mine,)) for mine in (specs, other)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert wrong == []
    assert complaints == []
    specs.remove(specs.all())
    assert files(run) == []
