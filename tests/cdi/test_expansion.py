"""What CDI names stand for is said as env, mounts and nodes; what can't be said is refused by its name."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway.cdi.expansion import HostNode, Resolved, expand
from dpgateway.cdi.spec import Edits, read
from dpgateway.errors import CdiError
from dpgateway.model import Allocation, DeviceNode, Mount, place
from tests.support.specs import spec

NULL = HostNode("c", 1, 3, 0o666, 0, 0)
HOST = {"/dev/null": NULL, "/dev/sda": HostNode("b", 8, 0, 0o660, 0, 6), "/etc": HostNode("", 0, 0, 0o755, 0, 0)}
NAMED = Allocation(cdi_devices=("v.example/gpu=0",))


def resolved(name="gpu=0", file="a.json", common=None, **edits):
    found = read(json.dumps(spec("v.example/gpu", version="1.1.0", common=common, a=edits)), file)
    return Resolved(name, file, found.containerEdits, found.devices[0].containerEdits)


def expanded(*several, allocation=NAMED, **edits):
    return expand(allocation, several or (resolved(**edits),), HOST.get)


def refusal(**edits):
    with pytest.raises(CdiError) as caught:
        expanded(**edits)
    return str(caught.value)


def test_a_spec_becomes_env_nodes_and_mounts():
    nodes = [{"path": "/dev/a", "hostPath": "/dev/null", "permissions": "rw"}, {"path": "/dev/b"}]
    mounts = [
        {"hostPath": "/a", "containerPath": "/b"},
        {"hostPath": "/c", "containerPath": "/d", "type": "none", "options": ["rbind", "rprivate", "rw", "ro"]},
    ]
    assert expanded(env=["A=1=2"], deviceNodes=nodes, mounts=mounts) == Allocation(
        env={"A": "1=2"},
        device_nodes=(DeviceNode("/dev/null", "/dev/a", "rw"), DeviceNode("/dev/b", "/dev/b", "rwm")),
        mounts=(Mount("/a", "/b", read_only=False), Mount("/c", "/d", read_only=True)),
    )


def test_later_edits_win_and_common_ones_come_once():
    rest = Allocation(
        {"A": "0", "Z": "0"}, (DeviceNode("/dev/x", "/dev/a"),), (Mount("/m", "/m"),), {"n": "1"}, ("v/c=a",)
    )
    common = {"env": ["A=common"]}
    one = resolved("gpu=0", common=common, env=["A=one"], mounts=[{"hostPath": "/one", "containerPath": "/m/"}])
    two = resolved("gpu=1", common=common, deviceNodes=[{"path": "/dev//a", "hostPath": "/dev/null"}])
    other = resolved("gpu=2", "b.json", common={"env": ["B=other"]})
    assert expanded(one, two, other, allocation=rest) == Allocation(
        env={"A": "one", "Z": "0", "B": "other"},
        device_nodes=(DeviceNode("/dev/null", "/dev//a", "rwm"),),
        mounts=(Mount("/one", "/m/", read_only=False),),
        annotations={"n": "1"},
    )


@pytest.mark.parametrize(
    ("edits", "text"),
    [
        (
            {"hooks": [{"hookName": "createRuntime", "path": "/bin/h"}]},
            "its hook createRuntime /bin/h can't be expanded",
        ),
        ({"intelRdt": {}}, "its intelRdt can't be expanded"),
        ({"additionalGids": [0, 5]}, "its additionalGids 5 can't be expanded"),
        ({"netDevices": [{"hostInterfaceName": "e0", "name": "a"}]}, "its network device e0 can't be expanded"),
        ({"mounts": [{"hostPath": "t", "containerPath": "/t", "type": "tmpfs"}]}, "its mount /t of type tmpfs can't"),
        (
            {"mounts": [{"hostPath": "/t", "containerPath": "/t", "options": ["bind", "nosuid", "nodev"]}]},
            "its mount /t has options that the API can't say: nosuid, nodev",
        ),
        ({"mounts": [{"hostPath": "t", "containerPath": "/t"}]}, "expected an absolute path, found 't'"),
        ({"deviceNodes": [{"path": "/dev/../a"}]}, "contains '..'"),
        ({"deviceNodes": [{"path": "/dev/a", "permissions": "none"}]}, "/dev/a has no permissions at all"),
        ({"deviceNodes": [{"path": "/dev/a", "type": "p"}]}, "/dev/a is a named pipe"),
        ({"deviceNodes": [{"path": "/dev/a", "major": 1}]}, "its device node /dev/a is missing"),
        ({"deviceNodes": [{"path": "/etc"}]}, "its device node /etc is no device node on this host"),
        ({"deviceNodes": [{"path": "/etc", "fileMode": 0o755}]}, "its device node /etc is no device node on this host"),
        ({"env": ["A=\0"]}, "contains a NUL"),
    ],
)
def test_what_no_kubelet_can_pass_on_is_refused(edits, text):
    assert text in refusal(**edits)


@pytest.mark.parametrize(
    ("said", "differs"),
    [
        ({"type": "b"}, "type c, expected b"),
        ({"major": 9, "minor": 3}, "major 1, expected 9"),
        ({"major": 1, "minor": 4}, "minor 3, expected 4"),
        ({"fileMode": 0o600}, "mode 0666, expected 0600"),
        ({"uid": 1}, "uid 0, expected 1"),
        ({"gid": 6}, "gid 0, expected 6"),
        ({"type": "b", "major": 9}, "type c, expected b; major 1, expected 9; minor 3, expected 0"),
    ],
)
def test_another_node_on_this_host_is_refused(said, differs):
    told = refusal(deviceNodes=[{"path": "/dev/a", "hostPath": "/dev/null", **said}])
    assert told == f"gpu=0 (a.json): its device node /dev/null is another on this host: {differs}"


@pytest.mark.parametrize(
    "said", [{"type": "c"}, {"type": "u"}, {"major": 1, "minor": 3}, {"fileMode": 0o20666, "uid": 0}]
)
def test_a_node_that_is_as_the_spec_says_is_given(said):
    (node,) = expanded(deviceNodes=[{"path": "/dev/null", **said}]).device_nodes
    assert node == DeviceNode("/dev/null", "/dev/null", "rwm")


def test_a_file_in_a_nodes_place_is_refused():
    assert "type none, expected c" in refusal(deviceNodes=[{"path": "/etc", "type": "c"}])


def test_all_inexpressible_edits_are_named():
    told = refusal(
        intelRdt={}, mounts=[{"hostPath": "a", "containerPath": "/a", "type": "tmpfs", "options": ["noexec"]}]
    )
    assert len(re.findall("gpu=0", told)) == 4


PATHS = st.sampled_from(["/a", "/a/b", "/dev/null", "//a/./c", "/é", "/a/"])
NODES = st.builds(DeviceNode, PATHS, PATHS, st.sampled_from(["r", "rw", "rwm", "m"]))
MOUNTS = st.builds(Mount, PATHS, PATHS, st.booleans())
PLACES = st.lists(NODES | MOUNTS, max_size=4, unique_by=lambda one: place(str(one.container_path)))
ENV = st.dictionaries(st.sampled_from(["A", "B", "é"]), st.sampled_from(["", "=", "a=b", " x ", "é", "0"]))


@settings(max_examples=30)
@given(ENV, PLACES, st.booleans())
def test_an_expanded_spec_is_the_allocation(env, places, common):
    nodes = tuple(one for one in places if isinstance(one, DeviceNode))
    mounts = tuple(one for one in places if isinstance(one, Mount))
    edits = {
        "env": [f"{name}={value}" for name, value in env.items()],
        "deviceNodes": [
            {"path": one.container_path, "hostPath": one.host_path, "permissions": one.permissions} for one in nodes
        ],
        "mounts": [
            {
                "hostPath": one.host_path,
                "containerPath": one.container_path,
                "options": ["rbind", "ro" if one.read_only else "rw"],
            }
            for one in mounts
        ],
    }
    one = resolved(common=edits) if common else resolved(**edits)
    assert expanded(one) == Allocation(env, nodes, mounts)


def test_nothing_resolved_leaves_the_rest():
    assert expand(Allocation({"A": "1"}), (Resolved("a", "f", Edits(), Edits()),), HOST.get) == Allocation({"A": "1"})
