"""What k8s-rdma-shared-dev-plugin gives is in its pkg/resources; here it is written by hand."""

import pytest

from dpgateway.config import Shares

PLUGIN = "k8s-rdma-shared-dev-plugin"

POLICY = """\
apiVersion: mellanox.com/v1alpha1
kind: NicClusterPolicy
metadata: {name: nic-cluster-policy}
spec:
  ofedDriver: {image: driver}
  rdmaSharedDevicePlugin:
    image: k8s-rdma-shared-dev-plugin
    config: |
      {
        "periodicUpdateInterval": 60,
        "configList": [
          {"resourceName": "by_model", "rdmaHcaMax": 63, "selectors": {"vendors": ["15b3"], "deviceIDs": ["101B"]}},
          {"resourceName": "by_name", "resourcePrefix": "a.b", "rdmaHcaMax": 5000, "devices": ["ib1", "ib2"]},
          {"resourceName": "by_link", "rdmaHcaMax": 2, "selectors": {"linkTypes": ["infiniband"]}},
          {"resourceName": "wrong", "rdmaHcaMax": "2"},
          {"resourceName": "all", "rdmaHcaMax": 2},
          {"resourceName": "none", "selectors": {"vendors": ["15b3"]}}
        ]
      }
"""


@pytest.fixture(autouse=True)
def cards(tree):
    """Three cards of two models; the last one is for Ethernet."""
    for number, (model, name, link) in enumerate((("101b", "ib0", 32), ("101b", "ib1", 32), ("1017", "eth2", 1))):
        here = f"/sys/devices/pci0000:17/0000:17:00.{number}"
        tree.write(f"""
            {here}/subsystem -> /sys/bus/pci
            {here}/driver -> /sys/bus/pci/drivers/mlx5_core
            {here}/vendor = 0x15b3
            {here}/device = 0x{model}
            {here}/class = 0x020700
            {here}/net/{name}/type = {link}
            {here}/infiniband/mlx5_{number}/
            {here}/infiniband_verbs/uverbs{number}/ibdev = mlx5_{number}
            {here}/infiniband_mad/umad{number}/ibdev = mlx5_{number}
            /sys/bus/pci/devices/0000:17:00.{number} -> {here}
            c /dev/infiniband/uverbs{number} 231:{192 + number}
            c /dev/infiniband/umad{number} 231:{number}
            c /dev/infiniband/rdma_cm 10:58
        """)


def given(*numbers):
    names = [f"{kind}{number}" for number in numbers for kind in ("uverbs", "umad")]
    return sorted((f"/dev/infiniband/{name}", f"/dev/infiniband/{name}", "rwm") for name in (*names, "rdma_cm"))


def test_all_devices_of_the_selected_cards(imported):
    written = imported(POLICY)
    nodes = {name: sorted(written.nodes(name)["all"]) for name in written.resources}
    assert nodes == {"rdma/by_model": given(0, 1), "a.b/by_name": given(1), "rdma/by_link": given(0, 1)}
    shares = [one.shares for one in written.resources.values()]
    assert shares == [Shares(count, ids="{share}") for count in (63, 1000, 2)]


def test_what_is_not_kept(imported):
    assert [(one["line"], one["what"]) for one in imported(POLICY).not_kept] == [
        (15, "the entry of line 15"),
        (13, "rdmaHcaMax"),
        (16, "selectors"),
        (17, "rdmaHcaMax"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "rdmaSharedDevicePlugin: {deploy: true, resources: [{name: it, vendors: [15b3], rdmaHcaMax: 4}]}",
        "rdma: {rdmaSharedDevicePlugin: {deviceConfig: {resourceName: it, rdmaHcaMax: 4, vendors: [15b3]}}}",
        'data: {a: "{CONFIGLIST: [{resourceName: it, rdmaHcaMax: 4, selectors: {Vendors: [15b3]}}]}"}',
    ],
)
def test_what_wraps_it(imported, text):
    written = imported(text)
    assert sorted(written.nodes("rdma/it")["all"]) == given(0, 1, 2)
    assert (written.resources["rdma/it"].shares.count, written.not_kept) == (4, [])


def test_a_chart_with_the_plugins_own_list(imported, importing):
    """Spiderpool's, whose values once had one resource in place of the list."""
    text = "rdmaSharedDevicePlugin:\n  deviceConfig:\n    periodicUpdateInterval: 300\n    configList: [%s]\n"
    written = imported(text % "{resourceName: a, rdmaHcaMax: 5, devices: [ib0]}")
    assert (list(written.resources), [one["what"] for one in written.not_kept]) == (["rdma/a"], [])
    assert "found nothing of it" in importing.refused(PLUGIN, text % "")[0]


@pytest.mark.parametrize("key", ["deploy", "install"])
def test_a_plugin_that_the_chart_does_not_deploy(importing, key):
    text = f"rdmaSharedDevicePlugin: {{{key}: false, resources: [{{name: it, vendors: [15b3]}}]}}\n"
    assert "found nothing of it" in importing.refused(PLUGIN, text)[0]


def test_nothing_of_it(importing):
    (told,) = importing.refused(PLUGIN, "kind: NicClusterPolicy\nspec: {}\n")
    assert told.startswith("theirs: found nothing of it, expected a mapping with the key configList, or a chart's ")


def test_a_model_that_is_none(imported):
    """No function has it, so it isn't offered in silence."""
    pool = "{resourceName: it, rdmaHcaMax: 4, selectors: {vendors: [15b3], deviceIDs: [<device>]}}"
    written = imported(f"configList: [{pool}]\n")
    assert (written.resources, [one["what"] for one in written.not_kept]) == ({}, ["selectors"])
    assert written.not_kept[0]["why"].endswith("expected hexadecimal digits, found <device>")
