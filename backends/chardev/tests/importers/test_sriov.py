"""What sriov-network-device-plugin gives is in its pkg/netdevice and pkg/infoprovider; here it is written by hand."""

from functools import partial

import pytest

from dpgateway import Allocation, DeviceNode

CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
data:
  config.json: |
    {
        "resourceList": [{
    \t\t"resourceName": "intel_netdevice",
                "selectors": {
                    "vendors": ["8086"],
                    "devices": ["154c", "1889"],
                    "drivers": ["iavf"],
                    "pfNames": ["enp0s0f0"]
                }
            },
            {
                "resourceName": "dpdk",
                "resourcePrefix": "example.com",
                "selectors": [{
                    "drivers": ["vfio-pci"],
                    "rootDevices": ["0000:17:00.0"]
                }]
            },
            {
                "resourceName": "rdma",
                "selectors": {"drivers": ["mlx5_core"], "isRdma": true, "needVhostNet": true}
            },
            {
                "resourceName": "fpga",
                "deviceType": "accelerator",
                "selectors": {"pciAddresses": ["0000:20:00.0"], "drivers": ["igb_uio"]}
            }
        ]
    }
"""
ALWAYS = ["PCIDEVICE_..._INFO", "the device-info files", "that the interface with the default route is never given"]


@pytest.fixture
def imported(importing):
    return partial(importing, "sriov-network-device-plugin")


def function(tree, address, driver, of=None, kind="0x020000"):
    here = f"/sys/devices/pci0000:17/{address}"
    tree.write(f"""
        {here}/subsystem -> /sys/bus/pci
        {here}/vendor = 0x8086
        {here}/device = 0x154c
        {here}/class = {kind}
        {here}/driver -> /sys/bus/pci/drivers/{driver}
        {here}/iommu_group -> /sys/kernel/iommu_groups/{address[-1]}
        /sys/bus/pci/devices/{address} -> {here}
        c /dev/vfio/vfio 10:196
        c /dev/vfio/{address[-1]} 240:{address[-1]}
    """)
    if of:
        tree.write(f"{here}/physfn -> /sys/devices/pci0000:17/{of}")
    return here


@pytest.fixture
def card(tree):
    """A physical function with three virtual ones, of which a pod has the first."""
    here = function(tree, "0000:17:00.0", "i40e")
    tree.write(f"{here}/sriov_numvfs = 3\n{here}/net/enp0s0f0/\n{here}/infiniband/mlx5_0/")
    function(tree, "0000:17:00.1", "iavf", "0000:17:00.0")
    function(tree, "0000:17:00.2", "vfio-pci", "0000:17:00.0")
    rdma = function(tree, "0000:17:00.3", "mlx5_core", "0000:17:00.0")
    tree.write(f"""
        {rdma}/infiniband/mlx5_1/
        {rdma}/infiniband_verbs/uverbs1/
        {rdma}/infiniband_mad/issm1/
        {rdma}/infiniband_mad/umad1/
        c /dev/infiniband/rdma_cm 10:58
        c /dev/infiniband/uverbs1 231:193
        c /dev/infiniband/umad1 231:1
        c /dev/infiniband/issm1 231:65
        c /dev/vhost-net 10:238
        c /dev/net/tun 10:200
    """)
    board = function(tree, "0000:20:00.0", "igb_uio", kind="0x120000")
    tree.write(f"{board}/uio/uio4/\nc /dev/uio4 243:4")


def allocation(variable, address, *nodes):
    return {address: Allocation(env={variable: address}, device_nodes=tuple(DeviceNode(one, one) for one in nodes))}


@pytest.mark.usefixtures("card")
def test_the_same_ids_variables_and_nodes(imported):
    written = imported(CONFIG_MAP)
    assert written.given("intel.com/intel_netdevice") == allocation(
        "PCIDEVICE_INTEL_COM_INTEL_NETDEVICE", "0000:17:00.1"
    )
    assert written.given("example.com/dpdk") == allocation(
        "PCIDEVICE_EXAMPLE_COM_DPDK", "0000:17:00.2", "/dev/vfio/vfio", "/dev/vfio/2"
    )
    infiniband = [f"/dev/infiniband/{name}" for name in ("rdma_cm", "uverbs1", "issm1", "umad1")]
    assert written.given("intel.com/rdma") == allocation(
        "PCIDEVICE_INTEL_COM_RDMA", "0000:17:00.3", *infiniband, "/dev/vhost-net", "/dev/net/tun"
    )
    assert written.given("intel.com/fpga") == allocation("PCIDEVICE_INTEL_COM_FPGA", "0000:20:00.0", "/dev/uio4")
    assert {one.pool for one in written.resources.values()} == {"sriov"}
    assert (written.code, [one["what"] for one in written.not_kept]) == (1, ALWAYS)


def test_a_physical_function_without_virtual_ones(imported, tree):
    for number, virtual in enumerate((0, 2)):
        here = function(tree, f"0000:17:00.{number}", "i40e")
        tree.write(f"{here}/sriov_numvfs = {virtual}")
    written = imported('{"resourceList": [{"resourceName": "pf", "selectors": {"drivers": ["i40e"]}}]}\n')
    assert list(written.given("intel.com/pf")) == ["0000:17:00.0"]


def test_the_prefix_of_its_command_line(imported):
    daemon_set = "kind: DaemonSet\nspec: {containers: [{args: [--resource-prefix=example.org]}]}\n---\n"
    whole = imported(daemon_set + '{"resourceList": [{"resourceName": "a", "selectors": {"drivers": ["iavf"]}}]}\n')
    assert {name: one.pool for name, one in whole.resources.items()} == {"example.org/a": None}


@pytest.mark.parametrize(
    ("pool", "lost"),
    [
        ('"selectors": {"drivers": ["iavf"], "pfNames": ["eth0#0-3"]}', "pfNames"),
        ('"selectors": {"drivers": ["iavf"], "rootDevices": ["0000:17:00.0#1"]}', "rootDevices"),
        ('"selectors": {"drivers": ["iavf"], "linkTypes": ["ether"]}', "linkTypes"),
        ('"selectors": {"drivers": ["iavf"], "ddpProfiles": ["GTPv1"]}', "ddpProfiles"),
        ('"selectors": {"drivers": ["mlx5_core"], "pKeys": ["0x1"]}', "pKeys"),
        ('"selectors": {"drivers": ["mlx5_core"], "vdpaType": "vhost"}', "vdpaType"),
        ('"selectors": {"drivers": ["iavf", "vfio-pci"]}', "drivers"),
        ('"selectors": {"vendors": ["8086"]}', "drivers"),
        ('"selectors": [{"drivers": ["iavf"]}, {"drivers": ["vfio-pci"]}]', "selectors"),
        ('"deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf"]}', "deviceType"),
    ],
)
def test_what_would_select_more_is_left_out(imported, pool, lost):
    written = imported(f'{{"resourceList": [{{"resourceName": "a", {pool}}}]}}\n')
    assert (written.resources, [one["what"] for one in written.not_kept]) == ({}, [lost])


def test_what_a_pool_says_beside_its_selectors(imported):
    more = '"excludeTopology": true, "additionalInfo": {"*": {"token": "1"}}'
    written = imported(f'{{"resourceList": [{{"resourceName": "a", "selectors": {{"drivers": ["iavf"]}}, {more}}}]}}\n')
    assert list(written.resources) == ["intel.com/a"]
    assert [one["what"] for one in written.not_kept] == [*ALWAYS, "excludeTopology", "additionalInfo"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}\n", "theirs: found nothing of it, expected a mapping with the key resourceList"),
        (
            CONFIG_MAP.replace('"drivers": ["iavf"]', '"driver": ["iavf"]'),
            "theirs:11: resourceList[0].selectors.driver: found an unknown key, ",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(importing, text, told):
    lines = importing.refused("sriov-network-device-plugin", text)
    assert any(line.startswith(told) for line in lines), lines
