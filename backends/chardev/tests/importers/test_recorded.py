"""What containers got of other plugins beside a real kubelet, which ``python -m tools.peers`` has recorded, and what
they get here by what is made of the same configuration, of the same files.
"""

import json
from pathlib import Path

import pytest

from dpgateway.resource.shares import share_ids

RECORDED = Path(__file__).with_name("recorded")
OTHER_IDS = {"squat.ai/optional", "squat.ai/stick", "squat.ai/hub"}
"""Resources of which the importer says that their ids aren't kept."""
LISTED = {"squat.ai/absent", "smarter-devices/rtc0"}
"""What is offered here, Unhealthy, while it isn't there."""


def theirs(answers, tree):
    """By id: nodes and mounts as (host, container, rights)."""
    return {
        id_: (_inside(given.get("devices", []), tree), [tuple(one) for one in given.get("mounts", [])])
        for id_, given in answers.items()
    }


def _inside(nodes, tree):
    """The nodes in the container: for a directory, a runtime gives all that are in it."""
    whole = []
    for host, container, rights in nodes:
        below = sorted(path.name for path in tree.at(host).iterdir()) if tree.at(host).is_dir() else [""]
        whole += [(f"{host}/{name}".rstrip("/"), f"{container}/{name}".rstrip("/"), rights) for name in below]
    return sorted(whole)


def ours(written, resource):
    """The same, for each share of each device."""
    shares = written.resources[resource].shares
    return {
        id_: (
            sorted((one.host_path, one.container_path or one.host_path, one.permissions) for one in given.device_nodes),
            sorted((mount.host_path, mount.container_path, mount.read_only) for mount in given.mounts),
        )
        for device, given in written.given(resource).items()
        for id_ in share_ids(device, shares.count, shares.ids or "")
    }


@pytest.mark.parametrize("plugin", ["generic-device-plugin", "smarter-device-manager"])
def test_containers_get_the_same(importing, tree, plugin):
    here = RECORDED / plugin
    tree.write((here / "tree.txt").read_text())
    written = importing(plugin, (here / "config.yaml").read_text())
    answers = json.loads((here / "answers.json").read_text())
    assert set(written.resources) - LISTED == set(answers) - LISTED
    for resource, recorded in answers.items():
        then, now = theirs(recorded, tree), ours(written, resource)
        if resource in OTHER_IDS:
            then, now = sorted(then.values()), sorted(now.values())
        assert now == then, resource
    assert {one["resource"] for one in written.not_kept if one["what"] == "the ids"} == OTHER_IDS & set(answers)
