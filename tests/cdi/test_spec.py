"""A spec is read as the runtimes read it; what is wrong with it is told with its key."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway.cdi.spec import VERSIONS, Edits, Hook, read
from dpgateway.errors import CdiError
from tests.support.specs import of, spec

FULL = """
cdiVersion: 1.1.0
kind: vendor.example/gpu.x
annotations: {a: b}
devices:
  - name: "0"
    annotations: {a: b}
    containerEdits:
      env: [A=1, B=]
      deviceNodes:
        - {path: /dev/a, hostPath: /dev/b, type: c, major: 1, minor: 3, fileMode: 438, permissions: r, uid: 0, gid: 0}
      mounts: [{hostPath: /a, containerPath: /b, type: bind, options: [ro]}]
containerEdits:
  hooks: [{hookName: createRuntime, path: /bin/a, args: [a], env: [A=1], timeout: 5}]
  intelRdt: {closID: a, schemata: [x], enableMonitoring: true}
  additionalGids: [5]
  netDevices: [{hostInterfaceName: a, name: b}]
"""


def wrong(content, **more):
    text = content if isinstance(content, str) else json.dumps({**content, **more})
    with pytest.raises(CdiError) as caught:
        read(text, "/etc/cdi/a.json")
    return str(caught.value)


def test_yaml_and_json_are_equal_in_every_field():
    from_yaml = read(FULL, "a.yaml")
    (device,) = from_yaml.devices
    assert device.containerEdits.deviceNodes[0].minor == 3
    assert from_yaml.containerEdits.hooks == (Hook("createRuntime", "/bin/a", ("a",), ("A=1",), 5),)
    edits = {"env": ["A=1"], "mounts": [{"hostPath": "/a", "containerPath": "/b"}]}
    small = spec(a=edits)
    as_yaml = (
        "cdiVersion: 1.0.0\nkind: vendor.example/gpu\ncontainerEdits: {}\ndevices:\n- name: a\n  containerEdits:\n"
    )
    as_yaml += "    env: [A=1]\n    mounts: [{hostPath: /a, containerPath: /b}]\n"
    assert read(json.dumps(small), "a.json") == read(as_yaml, "a.yaml")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "/etc/cdi/a.json: an empty file"),
        ("{", "/etc/cdi/a.json:1: found broken YAML"),
        ("[" * 1000 + "]" * 1000, "nested deeper than"),
        ("[]", "found an empty list, expected a mapping"),
        (spec(a={}) | {"more": 1}, "more: found an unknown key"),
        (spec(a={"moUnts": []}), "devices[0].containerEdits.moUnts: found an unknown key"),
        (spec(a={"env": ["A"]}), "devices[0].containerEdits.env: found "),
        (spec(a={"env": ["=A"]}), "expected NAME=value"),
        (spec(), "devices: found an empty list, expected at least one"),
        (of({"-a": {}}), "devices[0].name: found '-a', expected letters"),
        (spec("vendor.example", a={}), "kind: found 'vendor.example', expected vendor.example/class"),
        (spec("vendor.example/a/b", a={}), "kind: "),
        (spec("1a.example/b", a={}), "kind: "),
        (spec("a.example/1b", a={}), "kind: "),
        (spec(version="2.0.0", a={}), "cdiVersion: found '2.0.0', expected one of 0.1.0"),
        (spec(a={"deviceNodes": [{"path": ""}]}), "deviceNodes[0].path"),
        (spec(a={"deviceNodes": [{"path": "/a", "type": "x"}]}), "found 'x', expected b, c, u or p"),
        (spec(a={"deviceNodes": [{"path": "/a", "permissions": "rx"}]}), "found 'rx', expected some of rwm"),
        (spec(a={"deviceNodes": [{"path": "/a", "major": "1"}]}), 'found "1", expected an integer'),
        (spec(a={"mounts": [{"hostPath": "/a"}]}), "containerPath: found nothing, expected a value"),
        (spec(a={"mounts": [{"hostPath": "", "containerPath": "/a"}]}), 'hostPath: found "", expected a path'),
        (spec(a={"hooks": [{"hookName": "before", "path": "/a"}]}), "found 'before', expected one of createContainer"),
        (spec(a={"hooks": [{"hookName": "poststop", "path": ""}]}), 'path: found "", expected a path'),
    ],
    ids=lambda value: value if isinstance(value, str) and "[" not in value[:1] else "",
)
def test_what_is_wrong_is_told(content, text):
    told = wrong(content)
    assert told.startswith("/etc/cdi/a.json")
    assert text in told


def test_two_devices_of_one_name():
    twice = spec(a={})
    twice["devices"] *= 2
    assert "devices: found 'a' twice, expected each name once" in wrong(twice)


@pytest.mark.parametrize(
    ("needed", "content"),
    [
        ("0.4.0", spec(a={"mounts": [{"hostPath": "/a", "containerPath": "/a", "type": "bind"}]})),
        ("0.5.0", spec(a={"deviceNodes": [{"path": "/a", "hostPath": "/b"}]})),
        ("0.5.0", of({"0": {}})),
        ("0.6.0", spec("a.example/b.c", a={})),
        ("0.6.0", spec(a={}) | {"annotations": {"a": "b"}}),
        ("0.7.0", spec(a={}, common={"intelRdt": {}})),
        ("0.7.0", spec(a={"additionalGids": [1]})),
        ("1.1.0", spec(a={"netDevices": [{"hostInterfaceName": "a", "name": "b"}]})),
        ("1.1.0", spec(a={"intelRdt": {"enableMonitoring": True}})),
    ],
)
def test_a_field_newer_than_the_version_is_refused(needed, content):
    before = VERSIONS[VERSIONS.index(needed) - 1]
    assert f"cdiVersion: found {before!r}, expected at least {needed}, because" in wrong(content, cdiVersion=before)
    assert read(json.dumps({**content, "cdiVersion": f"v{needed}"}), "a").needed_version() == needed


WORDS = ["cdiVersion", "kind", "devices", "name", "containerEdits", "env", "mounts", "deviceNodes", "intelRdt", "path"]
TEXTS = st.sampled_from([*WORDS, "1.0.0", "v.example/gpu", "A=1", "\0", "\ud800", ""]) | st.text(max_size=5)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=30)
@given(ANYTHING, st.sampled_from(["edits", "device", "spec"]))
def test_any_text_is_a_spec_or_an_error(anything, where):
    content = spec(a=anything) if where == "edits" else {"kind": "v/c", "cdiVersion": "1.0.0", "devices": [anything]}
    with contextlib.suppress(CdiError):
        assert read(json.dumps(anything if where == "spec" else content), "a.json").devices


def test_many_devices_are_read_at_once():
    many = of({f"d{number}": {} for number in range(1000)})
    assert len(read(json.dumps(many), "a.json").devices) == 1000


def test_only_the_first_faults_are_named() -> None:
    """A spec of 1 MiB has room for 300,000."""
    told = wrong(spec(a={"env": [1] * 1000}))
    assert told.count("/etc/cdi/a.json") == 10
    assert told.endswith("; and 990 more")


def test_values_without_end_are_refused() -> None:
    told = wrong(spec(a={"env": ["A=1"] * 50_000}))
    assert told == "/etc/cdi/a.json: expected at most 50000 values, including keys"


def test_a_plain_spec_may_have_the_oldest_version():
    assert read(json.dumps(spec(version="0.1.0", a={})), "a").devices[0].containerEdits == Edits()
