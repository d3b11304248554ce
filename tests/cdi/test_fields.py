"""Every field of the newest CDI schema is known, and is expanded or refused by name: none is left out in silence.

``schema/`` has the specification's own schema, of version 1.1.0 (cncf-tags/container-device-interface, schema/, Apache
License 2.0). A newer one with another field fails here until somebody has decided what becomes of the field.
"""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from dpgateway.cdi import spec
from dpgateway.cdi.expansion import HostNode, Resolved, expand
from dpgateway.errors import CdiError
from dpgateway.model import Allocation
from tests.support.specs import of

SCHEMA, DEFS = (
    json.loads((Path(__file__).parent / "schema" / f"{name}.json").read_text()) for name in ("schema", "defs")
)
EDITS = DEFS["definitions"]["containerEdits"]
KINDS = {
    "spec": (spec.Spec, SCHEMA, {"containerEdits"}),  # left out of 1.1.0's schema by mistake; SPEC.md has it
    "device": (spec.SpecDevice, SCHEMA["properties"]["devices"]["items"], set()),
    "edits": (spec.Edits, EDITS, set()),
    "node": (spec.SpecNode, DEFS["definitions"]["DeviceNode"], {"fileMode"}),  # only the Go types have it
    "mount": (spec.SpecMount, DEFS["definitions"]["Mount"], set()),
    "hook": (spec.Hook, DEFS["definitions"]["Hook"], set()),
    "net": (spec.NetDevice, DEFS["definitions"]["LinuxNetDevice"], set()),
    "rdt": (spec.IntelRdt, EDITS["properties"]["intelRdt"], {"enableCMT", "enableMBM"}),  # until 1.0.0
}
NAMED = Allocation(cdi_devices=("vendor.example/gpu=a",))
NODE, MOUNT = {"path": "/dev/a"}, {"hostPath": "/a", "containerPath": "/a"}
HOST = HostNode("c", 1, 3, 0o666, 0, 0)


@pytest.mark.parametrize("name", KINDS)
def test_the_fields_are_those_of_the_schema(name):
    known, schema, more = KINDS[name]
    assert {field.name for field in fields(known)} == set(schema["properties"]) | more


def expanded(edits):
    """What a kubelet is told, or why it can't be told."""
    whole = spec.read(json.dumps(of({"a": edits}, cdiVersion="1.1.0")), "a.json")
    (device,) = whole.devices
    one = Resolved(NAMED.cdi_devices[0], "a.json", whole.containerEdits, device.containerEdits)
    try:
        return expand(NAMED, [one], lambda path: HOST)
    except CdiError as error:
        return str(error)


IN_EDITS = {
    "env": ["A=1"],
    "deviceNodes": [NODE],
    "mounts": [MOUNT],
    "hooks": [{"hookName": "poststop", "path": "/bin/h"}],
    "intelRdt": {"closID": "a"},
    "netDevices": [{"hostInterfaceName": "eth9", "name": "eth0"}],
    "additionalGids": [5],
}
REFUSED = {"hooks": "hook poststop /bin/h", "intelRdt": "intelRdt", "netDevices": "eth9", "additionalGids": "Gids 5"}


@pytest.mark.parametrize("field", EDITS["properties"])
def test_each_edit_is_expanded_or_refused(field):
    found = expanded({field: IN_EDITS[field]})
    assert found != expanded({})
    if field in REFUSED:
        assert REFUSED[field] in found
        assert "can't be expanded" in found
    else:
        assert isinstance(found, Allocation)


IN_NODE = {
    "path": ("/dev/b", ""),
    "hostPath": ("/dev/b", ""),
    "permissions": ("r", ""),
    "type": ("b", "type c, expected b"),
    "major": (9, "major 1, expected 9"),
    "minor": (9, "minor 3, expected 9"),
    "fileMode": (0o600, "mode 0666, expected 0600"),
    "uid": (9, "uid 0, expected 9"),
    "gid": (9, "gid 0, expected 9"),
}


@pytest.mark.parametrize("field", [*KINDS["node"][1]["properties"], *KINDS["node"][2]])
def test_each_node_field_is_expanded_or_checked(field):
    value, refused = IN_NODE[field]
    base = NODE | ({"major": 1} if field == "minor" else {})  # a minor number alone says nothing
    found = expanded({"deviceNodes": [base | {field: value}]})
    assert found != expanded({"deviceNodes": [base]})
    assert refused in str(found) if refused else isinstance(found, Allocation)


IN_MOUNT = {
    "hostPath": ("/b", ""),
    "containerPath": ("/b", ""),
    "options": (["ro"], ""),
    "type": ("tmpfs", "of type tmpfs can't be expanded"),
}


@pytest.mark.parametrize("field", KINDS["mount"][1]["properties"])
def test_each_mount_field_is_expanded_or_refused(field):
    value, refused = IN_MOUNT[field]
    found = expanded({"mounts": [MOUNT | {field: value}]})
    assert found != expanded({"mounts": [MOUNT]})
    assert refused in str(found) if refused else isinstance(found, Allocation)
