"""Names are looked up in the directories of specs, with care, and what was found is told."""

import json
import os
import re
import threading

import pytest

from dpgateway.cdi import directories
from dpgateway.cdi.directories import SpecDirectories, look
from dpgateway.errors import CdiError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from tests.support.logs import complaint
from tests.support.specs import of, spec, write

GPU = "vendor.example/gpu"


@pytest.fixture
def etc(tmp_path):
    return tmp_path / "etc"


@pytest.fixture
def specs(etc, run, complaints):
    return SpecDirectories((etc, run), complaint(complaints))


def unresolved(specs, name):
    with pytest.raises(CdiError) as caught:
        specs.resolve([name])
    return str(caught.value)


def test_a_lookup_gives_up_behind_a_slow_one(etc, gate):
    write(etc / "a.json", spec(a={}))
    (etc / "b.json").write_text(f"no spec of {GPU}")
    slow = gate()

    class Slow(Complaint):
        def say(self, *texts, **more):
            slow()

    specs = SpecDirectories((etc,), Slow(bind("test")))  # it complains for long, instead of reading for long
    reader = threading.Thread(target=specs.resolve, args=([f"{GPU}=a"],))
    reader.start()
    while not slow.calls:
        os.sched_yield()
    assert unresolved(specs, f"{GPU}=a") == "the CDI specs have been read for 5 s: a disk hangs, or there are too many"
    slow.open()
    reader.join()
    assert specs.resolve([f"{GPU}=a"])


def test_a_name_resolves_to_own_and_common_edits(specs, etc, run):
    file = write(etc / "a.yaml", spec(common={"env": ["A=1"]}, a={"env": ["B=1"]}, b={}))
    write(run / "b.json", spec("vendor.example/nic", a={"env": ["C=1"]}))
    one, two = specs.resolve([f"{GPU}=a", "vendor.example/nic=a"])
    assert (one.file, one.common.env, one.own.env) == (str(file), ("A=1",), ("B=1",))
    assert two.own.env == ("C=1",)


def test_the_later_directory_wins(specs, etc, run):
    write(etc / "a.json", spec(a={"env": ["FROM=etc"]}))
    write(run / "a.json", spec(a={"env": ["FROM=run"]}))
    assert specs.resolve([f"{GPU}=a"])[0].own.env == ("FROM=run",)


def test_a_name_twice_in_a_directory_is_refused(specs, etc, run):
    for name in "ab":
        write(etc / f"{name}.json", spec(a={}))
    write(run / "c.json", spec(a={}))
    assert unresolved(specs, f"{GPU}=a").startswith(
        f"the CDI device {GPU}=a is in {etc}/a.json and {etc}/b.json: expected one"
    )


def test_an_unknown_name_lists_what_was_found(specs, etc, run):
    assert unresolved(specs, f"{GPU}=a") == (
        f"no spec has the CDI device {GPU}=a; looked in {etc}, which has no specs; {run}, which has no specs"
    )
    write(etc / "a.json", spec("vendor.example/nic", a={}))
    write(run / "a.json", of({f"d{n}": {} for n in range(12)}))
    write(run / "b.json", "{")
    write(run / "readme.txt", "{")
    told = unresolved(specs, f"{GPU}=a")
    assert f"looked in {etc}, which has only vendor.example/nic; {run}, which has of {GPU} only d0, d1, " in told
    assert f", ...; not counted: {run}/b.json:1: found broken YAML" in told


def test_only_changed_specs_are_read_again(specs, etc, monkeypatch):
    file = write(etc / "a.json", spec(a={"env": ["A=1"]}))
    assert specs.resolve([f"{GPU}=a"])[0].own.env == ("A=1",)
    before = specs.resolve([f"{GPU}=a"])[0].own
    assert specs.resolve([f"{GPU}=a"])[0].own is before
    write(file.with_suffix(".new"), spec(a={"env": ["A=22"]})).replace(file)
    assert specs.resolve([f"{GPU}=a"])[0].own.env == ("A=22",)
    file.unlink()
    unresolved(specs, f"{GPU}=a")


def test_a_broken_spec_is_logged_once_and_ignored(specs, etc, complaints):
    write(etc / "a.json", spec(a={}))
    broken = write(etc / "b.json", spec(b={}) | {"more": 1})
    for _ in range(3):
        specs.resolve([f"{GPU}=a"])
    assert [re.sub(", expected.*", "", text) for text in complaints] == [f"{broken}: more: found an unknown key"]
    write(broken, spec(b={}))
    specs.resolve([f"{GPU}=b"])
    broken.write_text(f'{{"kind": "{GPU}"')
    specs.resolve([f"{GPU}=a"])
    assert len(complaints) == 2


def test_other_kinds_are_parsed_for_the_error_only(specs, etc, complaints):
    """A node may have thousands of them, each of which takes a millisecond."""
    write(etc / "a.json", spec(a={}))
    (etc / "b.json").write_text("{")
    (etc / "c.yaml").write_text("kind: vendor.example/other\nmore: [")
    for name in (f"{GPU}=a", f"{GPU}=a"):
        assert specs.resolve([name])
    assert complaints == []
    assert "not counted" in unresolved(specs, "vendor.example/third=a")
    assert len(complaints) == 2


def test_an_escaped_name_is_found(specs, etc):
    written = json.dumps(spec(a={})).replace("vendor", "\\u0076endor").replace("/", "\\/")
    assert GPU not in written
    etc.mkdir()
    (etc / "a.json").write_text(written)
    assert specs.resolve([f"{GPU}=a"])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda file: file.write_bytes(b"\xff"), "expected text in UTF-8"),
        (lambda file: file.write_bytes(b" " * (directories.LARGEST + 1)), "expected at most 1048576 bytes"),
        (os.mkfifo, "expected a regular file"),
        (lambda file: file.symlink_to("/etc/hostname"), "a link to /etc/hostname, expected a file of this directory"),
        (lambda file: file.symlink_to(file), "Symlink loop|Too many levels"),
    ],
)
def test_what_is_no_spec_does_not_count(specs, etc, complaints, make, text):
    write(etc / "a.json", spec(a={}))
    make(etc / "b.json")
    specs.resolve([f"{GPU}=a"])
    (said,) = complaints
    assert said.startswith(f"{etc}/b.json")
    assert re.search(text, said)


def test_a_link_within_the_directory_is_followed(specs, etc):
    write(etc / "..data", spec(a={}))
    (etc / "a.json").symlink_to("..data")
    specs.resolve([f"{GPU}=a"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is told apart from others")
@pytest.mark.parametrize("spoil", [lambda path: path.chmod(0o777), lambda path: os.chown(path, 1000, 0)])
@pytest.mark.parametrize("what", [".", "a.json"])
def test_specs_that_others_may_write_are_ignored(specs, etc, complaints, spoil, what):
    write(etc / "a.json", spec(a={}))
    spoil(etc / what)
    assert f"not counted: {etc / what}: found user" in unresolved(specs, f"{GPU}=a")
    assert "expected only root to own it" in complaints[0]


def test_too_many_files_are_not_looked_at(specs, etc, complaints, monkeypatch):
    monkeypatch.setattr(directories, "MOST", 1)
    for name in "ab":
        write(etc / f"{name}.json", spec(a={}))
    assert f"not counted: {etc}: 2 specs, expected at most 1" in unresolved(specs, f"{GPU}=a")


def test_what_is_at_a_path_of_the_host(tmp_path):
    null = look("/dev/null")
    assert null is not None
    assert (null.type, null.major, null.minor) == ("c", 1, 3)
    directory = look(str(tmp_path))
    assert directory is not None
    assert directory.type == ""
    assert look(str(tmp_path / "absent")) is look("\0") is None
