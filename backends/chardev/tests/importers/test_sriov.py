"""What sriov-network-device-plugin gives is in its pkg/netdevice and pkg/infoprovider; here it is written by hand."""

import json

import pytest

from dpgateway import Allocation, DeviceNode

PLUGIN = "sriov-network-device-plugin"

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
    """A physical function with three virtual ones. A pod has the first, and another the last with its RDMA device."""
    here = function(tree, "0000:17:00.0", "i40e")
    tree.write(f"{here}/sriov_numvfs = 3\n{here}/net/enp0s0f0/\n{here}/infiniband/mlx5_0/")
    function(tree, "0000:17:00.1", "iavf", "0000:17:00.0")
    function(tree, "0000:17:00.2", "vfio-pci", "0000:17:00.0")
    rdma = function(tree, "0000:17:00.3", "mlx5_core", "0000:17:00.0")
    tree.write(f"""
        {rdma}/infiniband_verbs/uverbs1/ibdev = mlx5_1
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


def allocation(variable, address, *nodes, **info):
    told = json.dumps({address: {"generic": {"deviceID": address}, **info}}, sort_keys=True, separators=(",", ":"))
    env = {variable: address, f"{variable}_INFO": told}
    return {address: Allocation(env=env, device_nodes=tuple(DeviceNode(one, one) for one in nodes))}


@pytest.mark.usefixtures("card")
def test_the_same_ids_variables_nodes_and_files(imported, tree):
    written = imported(CONFIG_MAP)
    assert written.given("intel.com/intel_netdevice") == allocation(
        "PCIDEVICE_INTEL_COM_INTEL_NETDEVICE", "0000:17:00.1"
    )
    assert written.given("example.com/dpdk") == allocation(
        "PCIDEVICE_EXAMPLE_COM_DPDK",
        "0000:17:00.2",
        "/dev/vfio/vfio",
        "/dev/vfio/2",
        vfio={"mount": "/dev/vfio/vfio", "dev-mount": "/dev/vfio/2"},
    )
    infiniband = {"rdma_cm": "rdma_cm", "uverbs": "uverbs1", "issm": "issm1", "umad": "umad1"}
    rdma = {key: f"/dev/infiniband/{name}" for key, name in infiniband.items()}
    assert written.given("intel.com/rdma") == allocation(
        "PCIDEVICE_INTEL_COM_RDMA",
        "0000:17:00.3",
        *rdma.values(),
        "/dev/vhost-net",
        "/dev/net/tun",
        rdma={**rdma, "rdma_dev": "mlx5_1"},
        vhost={"net-mount": "/dev/vhost-net", "tun-mount": "/dev/net/tun"},
    )
    assert written.given("intel.com/fpga") == allocation(
        "PCIDEVICE_INTEL_COM_FPGA", "0000:20:00.0", "/dev/uio4", uio={"mount": "/dev/uio4"}
    )
    assert {one.pool for one in written.resources.values()} == {"sriov"}
    assert (written.code, written.not_kept) == (0, [])
    files = tree.at("/var/run/k8s.cni.cncf.io/devinfo/dp").iterdir()
    of_rdma = '{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:17:00.3","rdma-device":"mlx5_1"}}'
    assert {file.name: file.read_text() for file in files}.items() >= {
        ("intel.com-rdma-0000:17:00.3-device.json", of_rdma)
    }


@pytest.fixture
def functions(tree):
    """Twelve virtual functions of each of two physical ones."""
    for bus, link in (("17", 1), ("18", 32)):
        pf = function(tree, f"0000:{bus}:00.0", "i40e")
        tree.write(f"{pf}/sriov_numvfs = 12\n{pf}/net/pf{bus}/type = {link}")
        for number in range(12):
            here = function(tree, f"0000:{bus}:02.{number}", "vfio-pci" if number == 11 else "iavf", f"0000:{bus}:00.0")
            tree.write(f"{pf}/virtfn{number} -> {here}")
    tree.write("""
        /sys/devices/pci0000:17/0000:17:02.3/net/eth3/
        /sys/devices/pci0000:17/0000:17:02.4/vdpa4/driver -> /sys/bus/vdpa/drivers/vhost_vdpa
        /sys/devices/pci0000:17/0000:17:02.5/vdpa5/driver -> /sys/bus/vdpa/drivers/virtio_vdpa
        /sys/bus/vdpa/drivers/vhost_vdpa/
        /sys/bus/vdpa/drivers/virtio_vdpa/
        /sys/devices/pci0000:17/0000:17:02.4/vdpa4/vhost-vdpa-0/
        c /dev/vhost-vdpa-0 238:0
    """)
    tree.write(
        "/proc/1/net/route = Iface\tDestination\\neth3\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0"
    )  # not 0000:17:02.3
    tree.write("/sys/devices/pci0000:17/0000:17:02.6/net/eth6/")
    tree.write(
        "/proc/net/route = Iface\tDestination\\neth6\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0"
    )  # nor 0000:17:02.6


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    ("selectors", "found"),
    [
        ('"pfNames": ["pf17#0-2,10"]', "17:0 17:1 17:10 17:2"),
        ('"pfNames": ["pf17#1", "pf18#2"]', "17:1 18:2"),
        ('"rootDevices": ["0000:18:00.0#8-20"]', "18:10 18:8 18:9"),
        ('"rootDevices": ["0000:18:00.0#1-3"], "pfNames": ["pf18#3-9"]', "18:3"),
        ('"rootDevices": ["0000:18:00.0#1"], "pfNames": ["pf18#3-9"]', ""),
        ('"pfNames": ["pf17#2-4,6"]', "17:2 17:4"),
        ('"pfNames": ["pf17#3,4", "pf18#0"], "linkTypes": ["infiniband"]', "18:0"),
        ('"linkTypes": ["ether"], "pfNames": ["pf17#0", "pf18#0"]', "17:0"),
        ('"pfNames": ["pf17"], "vdpaType": "vhost"', "17:4"),
        ('"pfNames": ["pf17"], "vdpaType": "virtio"', "17:5"),
    ],
)
def test_selectors_of_virtual_functions(imported, selectors, found):
    written = imported(
        f'{{"resourceList": [{{"resourceName": "a", "selectors": {{"drivers": ["iavf"], {selectors}}}}}]}}\n'
    )
    ids = [id_.removeprefix("0000:").replace(":02.", ":") for id_ in written.given("intel.com/a")]
    assert (written.not_kept, " ".join(ids)) == ([], found)


@pytest.mark.usefixtures("functions")
def test_functions_for_vhost_vdpa(imported, tree):
    pool = '"resourceName": "a", "selectors": {"drivers": ["iavf"], "vdpaType": "vhost"}'
    given = imported(f'{{"resourceList": [{{{pool}}}]}}\n').given("intel.com/a")
    assert given == allocation(
        "PCIDEVICE_INTEL_COM_A", "0000:17:02.4", "/dev/vhost-vdpa-0", vdpa={"mount": "/dev/vhost-vdpa-0"}
    )
    (file,) = tree.at("/var/run/k8s.cni.cncf.io/devinfo/dp").iterdir()
    assert file.read_text() == (
        '{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa4","driver":"vhost",'
        '"path":"/dev/vhost-vdpa-0","pci-address":"0000:17:02.4"}}'
    )


@pytest.mark.usefixtures("functions")
def test_nodes_per_driver(imported):
    pool = '"resourceName": "a", "selectors": {"drivers": ["iavf", "vfio-pci"], "pfNames": ["pf17#0,11"]}'
    written = imported(f'{{"resourceList": [{{{pool}}}]}}\n')
    given = written.given("intel.com/a")
    nodes = {id_: [node.host_path for node in one.device_nodes] for id_, one in given.items()}
    assert nodes == {"0000:17:02.0": [], "0000:17:02.11": ["/dev/vfio/vfio", "/dev/vfio/1"]}
    assert written.not_kept == []
    vfio = {"mount": "/dev/vfio/vfio", "dev-mount": "/dev/vfio/1"}
    both = allocation("PCIDEVICE_INTEL_COM_A", "0000:17:02.0") | allocation(
        "PCIDEVICE_INTEL_COM_A", "0000:17:02.11", "/dev/vfio/vfio", "/dev/vfio/1", vfio=vfio
    )
    assert {id_: one.env for id_, one in given.items()} == {id_: one.env for id_, one in both.items()}


@pytest.mark.usefixtures("card")
def test_information_per_driver(imported):
    """As the nodes differ; what else differs is lost."""
    board = {"resourceName": "a", "deviceType": "accelerator", "selectors": [{}, {"drivers": ["igb_uio"]}]}
    assert imported(json.dumps({"resourceList": [board]})).given("intel.com/a") == allocation(
        "PCIDEVICE_INTEL_COM_A", "0000:20:00.0", "/dev/uio4", uio={"mount": "/dev/uio4"}
    )
    other = {"resourceName": "a", "selectors": [{"pfNames": ["enp0s0f0"]}, {"vendors": ["8086"], "isRdma": True}]}
    lost = imported(json.dumps({"resourceList": [other]})).not_kept
    assert [one["what"] for one in lost] == ["PCIDEVICE_INTEL_COM_A_INFO", "device-info files"]


@pytest.fixture
def sub_functions(tree):
    """Three of one function and one of another, of which a pod has the last; and auxiliary devices of other kinds."""
    for bus in ("17", "18"):
        here = function(tree, f"0000:{bus}:00.0", "mlx5_core")
        tree.write(f"{here}/sriov_numvfs = 2\n{here}/net/pf{bus}/type = 1\n{here}/numa_node = 1")
    for bus, name, number in (("17", "sf.2", 88), ("17", "sf.3", 89), ("17", "sf.10", 90), ("18", "sf.4", 88)):
        here = f"/sys/devices/pci0000:17/0000:{bus}:00.0/mlx5_core.{name}"
        tree.write(f"""
            {here}/subsystem -> /sys/bus/auxiliary
            {here}/driver -> /sys/bus/auxiliary/drivers/mlx5_core.sf
            {here}/sfnum = {number}
            /sys/bus/auxiliary/devices/mlx5_core.{name} -> {here}
        """)
    for other in ("mlx5_core.eth.2", "mlx5_core.sf.x", "irdma.gen_2.roce.1"):
        here = f"/sys/devices/pci0000:17/0000:17:00.0/{other}"
        tree.write(f"{here}/subsystem -> /sys/bus/auxiliary\n/sys/bus/auxiliary/devices/{other} -> {here}")
    rdma = "/sys/devices/pci0000:17/0000:17:00.0/mlx5_core.sf.3"
    tree.write(f"""
        {rdma}/infiniband/mlx5_5/
        {rdma}/infiniband_verbs/uverbs5/ibdev = mlx5_5
        {rdma}/infiniband_mad/umad5/
        c /dev/infiniband/rdma_cm 10:58
        c /dev/infiniband/uverbs5 231:197
        c /dev/infiniband/umad5 231:5
    """)


@pytest.mark.usefixtures("sub_functions")
@pytest.mark.parametrize(
    ("selectors", "found"),
    [
        ("", "10 2 3 4"),
        ('"drivers": ["mlx5_core"], "vendors": ["8086"], "devices": ["154c"]', "10 2 3 4"),
        ('"drivers": ["mlx5_core.sf"]', ""),
        ('"pfNames": ["pf17"]', "10 2 3"),
        ('"pfNames": ["pf17#88-89", "pf18#89"]', "2 3"),
        ('"rootDevices": ["0000:18:00.0"]', "4"),
        ('"rootDevices": ["0000:17:00.0#88,90"], "linkTypes": ["ether"]', "10 2"),
        ('"linkTypes": ["infiniband"]', ""),
    ],
)
def test_selectors_of_sub_functions(imported, selectors, found):
    more = f'"auxTypes": ["sf"]{"," if selectors else ""} {selectors}'
    pool = f'"resourceName": "a", "deviceType": "auxNetDevice", "selectors": {{{more}}}'
    written = imported(f'{{"resourceList": [{{{pool}}}]}}\n')
    ids = [id_.removeprefix("mlx5_core.sf.") for id_ in written.given("intel.com/a")]
    assert (written.not_kept, " ".join(ids)) == ([], found)


@pytest.mark.usefixtures("sub_functions")
def test_sub_function_name_and_nodes(imported, tree):
    selectors = '{"auxTypes": ["sf"], "isRdma": true}'
    more = f'"additionalInfo": {{"*": {{"token": "1"}}}}, "selectors": {selectors}'
    given = imported(f'{{"resourceList": [{{"resourceName": "a", "deviceType": "auxNetDevice", {more}}}]}}\n').given(
        "intel.com/a"
    )
    names = {"rdma_cm": "rdma_cm", "uverbs": "uverbs5", "umad": "umad5"}
    rdma = {key: f"/dev/infiniband/{name}" for key, name in names.items()}
    assert given == allocation(
        "PCIDEVICE_INTEL_COM_A",
        "mlx5_core.sf.3",
        *rdma.values(),
        rdma={**rdma, "rdma_dev": "mlx5_5"},
        extra={"token": "1"},
    )
    assert not tree.at("/var/run/k8s.cni.cncf.io").exists()


def test_a_physical_function_without_virtual_ones(imported, tree):
    for number, virtual in enumerate((0, 2)):
        here = function(tree, f"0000:17:00.{number}", "i40e")
        tree.write(f"{here}/sriov_numvfs = {virtual}")
    written = imported('{"resourceList": [{"resourceName": "pf", "selectors": {"drivers": ["i40e"]}}]}\n')
    assert list(written.given("intel.com/pf")) == ["0000:17:00.0"]


@pytest.mark.usefixtures("card")
def test_pool_of_any_driver(imported, tree):
    """Each function has the nodes of its driver."""
    here = function(tree, "0000:17:00.4", "none", "0000:17:00.0")
    tree.remove(f"{here}/driver")
    written = imported('{"resourceList": [{"resourceName": "a", "selectors": {"pfNames": ["enp0s0f0"]}}]}')
    assert written.nodes("intel.com/a") == {
        "0000:17:00.1": [],
        "0000:17:00.2": [(path, path, "rw") for path in ("/dev/vfio/vfio", "/dev/vfio/2")],
        "0000:17:00.3": [],
    }
    assert written.not_kept == []
    rdma = imported('{"resourceList": [{"resourceName": "a", "selectors": {"pfNames": ["enp0s0f0"], "isRdma": true}}]}')
    assert list(rdma.given("intel.com/a")) == ["0000:17:00.3"]
    assert rdma.code == 0


def of_node(driver):
    """A node's file, with the keys that the operator writes."""
    selectors = {"drivers": [driver], "IsRdma": False, "NeedVhostNet": False}
    return json.dumps({"resourceList": [{"resourceName": "nics", "selectors": selectors, "SelectorObj": None}]})


OF_NODES = f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: device-plugin-config}}
data:
  worker-0: '{of_node("iavf")}'
  worker-1: '{of_node("iavf")}'
  worker-2: '{of_node("i40e")}'
  worker-3: '{{"resourceList":null}}'
"""


def test_a_file_for_each_node(imported):
    """As the operator writes them: a name with other selectors on another node can't be in one configuration."""
    written = imported(OF_NODES)
    assert {name: one.nodes for name, one in written.resources.items()} == {"intel.com/nics": ("worker-0", "worker-1")}
    assert [(one["line"], one["what"]) for one in written.not_kept] == [(7, "the resource")]
    assert "import it with --node-label=kubernetes.io/hostname=worker-2" in written.not_kept[0]["why"]
    other = imported(OF_NODES, "--node-label=kubernetes.io/hostname=worker-2")
    assert (other.resources["intel.com/nics"].nodes, other.code) == (("worker-2",), 0)


def test_keys_as_the_plugin_reads_them(imported):
    """In upper or lower case; an unknown one is lost only if it says something."""
    pool = '"resourceName": "a", "isRdma": true, "selectors": {"Drivers": ["iavf"], "sriovMode": false}'
    written = imported(f'{{"ResourceList": [{{{pool}}}, {{"resourceName": "b", "deviceType": "gpu"}}]}}')
    assert list(written.resources) == ["intel.com/a"]
    assert [(one["what"], one["why"]) for one in written.not_kept] == [
        ("isRdma", "the plugin ignores it here"),
        ("the entry of line 1", 'found "gpu", expected netDevice or accelerator or auxNetDevice'),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "kind: NicClusterPolicy\nspec: {sriovDevicePlugin: {config: '%s'}}\n",
        "kind: HelmRelease\nspec: {values: {resourceList: [{resourceName: a, selectors: {drivers: [iavf]}}]}}\n",
        "sriov_config:\n  resourceList: [{resourceName: a, selectors: [{drivers: [iavf]}]}]\n",
    ],
)
def test_what_wraps_it(imported, text):
    config = '{"resourceList": [{"resourceName": "a", "selectors": {"drivers": ["iavf"]}}]}'
    written = imported(text.replace("%s", config))
    assert (list(written.resources), written.not_kept) == (["intel.com/a"], [])
    assert "# The prefix is the plugin's default, intel.com" in written.text


@pytest.mark.usefixtures("card")
def test_pools_of_a_charts_values(imported, importing):
    """Those of NVIDIA's network operator, which has RDMA devices only."""
    values = "sriovDevicePlugin:\n  deploy: true\n  resources: [{name: a, vendors: ['8086']}]\n"
    written = imported(values)
    assert list(written.given("nvidia.com/a")) == ["0000:17:00.3"]
    assert (written.not_kept, "--resource-prefix" in written.text) == ([], False)
    refused = importing.refused(PLUGIN, values.replace("true", "false"))
    assert "found nothing of it" in refused[0]


def test_the_prefix_of_its_command_line(imported):
    daemon_set = "kind: DaemonSet\nspec: {containers: [{args: [--resource-prefix=example.org]}]}\n---\n"
    whole = imported(daemon_set + '{"resourceList": [{"resourceName": "a", "selectors": {"drivers": ["iavf"]}}]}\n')
    assert {name: one.pool for name, one in whole.resources.items()} == {"example.org/a": None}


@pytest.mark.parametrize(
    ("pool", "lost"),
    [
        ('"selectors": []', "selectors"),
        ('"excludeTopology": true', "selectors"),
        ('"selectors": {"drivers": ["iavf"], "pfNames": ["eth0#all"]}', "pfNames"),
        ('"selectors": {"drivers": ["iavf"], "rootDevices": ["0000:17:00.0#"]}', "rootDevices"),
        ('"selectors": {"drivers": ["iavf"], "linkTypes": ["ppp"]}', "linkTypes"),
        ('"selectors": {"drivers": ["iavf"], "ddpProfiles": ["GTPv1"]}', "ddpProfiles"),
        ('"selectors": {"drivers": ["mlx5_core"], "pKeys": ["0x1"]}', "pKeys"),
        ('"selectors": {"drivers": ["mlx5_core"], "vdpaType": "other"}', "vdpaType"),
        ('"deviceType": "auxNetDevice", "selectors": {"drivers": ["mlx5_core"]}', "auxTypes"),
        ('"deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf", "eth"]}', "auxTypes"),
        ('"deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf"], "pfNames": ["eth0#x"]}', "pfNames"),
    ],
)
def test_what_would_select_more_is_left_out(imported, pool, lost):
    written = imported(f'{{"resourceList": [{{"resourceName": "a", {pool}}}]}}\n')
    assert (written.resources, [one["what"] for one in written.not_kept]) == ({}, [lost])


@pytest.mark.usefixtures("card", "sub_functions")
@pytest.mark.parametrize(
    ("kind", "asked", "ignored", "found"),
    [
        ("accelerator", '"drivers": ["igb_uio"]', '"pfNames": ["a"], "isRdma": true', "0000:20:00.0"),
        ("auxNetDevice", '"auxTypes": ["sf"], "pfNames": ["pf18"]', '"pciAddresses": ["a"]', "mlx5_core.sf.4"),
        ("auxNetDevice", '"auxTypes": ["sf"], "pfNames": ["pf18"]', '"pKeys": ["0x1"]', "mlx5_core.sf.4"),
        ("netDevice", '"drivers": ["iavf"]', '"auxTypes": ["sf"]', "0000:17:00.1"),
    ],
)
def test_selectors_that_the_plugin_ignores(imported, kind, asked, ignored, found):
    pool = f'"resourceName": "a", "deviceType": "{kind}", "selectors": {{{asked}, {ignored}}}'
    written = imported(f'{{"resourceList": [{{{pool}}}]}}\n')
    assert list(written.given("intel.com/a")) == [found]
    assert [one["what"] for one in written.not_kept] == list(json.loads(f"{{{ignored}}}"))


def test_what_a_pool_says_beside_its_selectors(imported, tree):
    tree.write(f"{function(tree, '0000:17:00.1', 'iavf')}/numa_node = 1")
    more = '"excludeTopology": true, "additionalInfo": {"*": {"token": "1"}, "0000:17:00.1": {"token": "2"}}'
    written = imported(f'{{"resourceList": [{{"resourceName": "a", "selectors": {{"drivers": ["iavf"]}}, {more}}}]}}\n')
    assert written.given("intel.com/a") == allocation("PCIDEVICE_INTEL_COM_A", "0000:17:00.1", extra={"token": "1"})
    assert written.resources["intel.com/a"].options.numa == ""
    assert [one["what"] for one in written.not_kept] == ["additionalInfo"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}\n", "theirs: found nothing of it, expected a mapping with the key resourceList"),
        (
            '{"resourceList": [{\n"resourceName": "a", "selectors": {\n"isRdma": 1}}]}',
            "theirs:3: resourceList[0].selectors.isRdma: found 1, expected true or false",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(importing, text, told):
    lines = importing.refused(PLUGIN, text)
    assert any(line.startswith(told) for line in lines), lines


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize(
    ("more", "found"),
    [
        ('"sriovMode": true, "deviceType": "netdevice"', ["0000:17:00.1", "0000:17:00.2", "0000:17:00.3"]),
        ('"sriovMode": true, "deviceType": "vfio"', ["0000:17:00.2"]),
        ('"sriovMode": true, "deviceType": "uio"', []),
        ('"deviceType": "netdevice"', ["0000:17:00.0"]),
        ('"sriovMode": false', ["0000:17:00.0"]),
    ],
)
def test_pools_before_selectors(imported, tree, more, found):
    """As the versions before 3.0 had them."""
    if "true" not in more:
        tree.write("/sys/devices/pci0000:17/0000:17:00.0/sriov_numvfs = 0")
    pool = f'{{"resourceName": "old", "rootDevices": ["17:00.0", "0000:18:00.0"], {more}}}'
    written = imported(f'{{"resourceList": [{pool}]}}\n')
    assert (list(written.given("intel.com/old")), written.not_kept) == (found, [])


@pytest.mark.parametrize(
    ("selector", "key", "why"),
    [
        (
            '"rootDevices": ["$pci_string"]',
            "rootDevices",
            "expected PCI addresses such as 0000:3b:00.0, found $pci_string",
        ),
        (
            '"pciAddresses": ["<address>"]',
            "pciAddresses",
            "expected PCI addresses such as 0000:3b:00.0, found <address>",
        ),
        ('"vendors": ["<vendor>"]', "vendors", "expected hexadecimal digits, found <vendor>"),
        ('"devices": ["1018", ""]', "devices", "expected hexadecimal digits, found nothing"),
    ],
)
def test_what_no_function_has(imported, selector, key, why):
    """Somebody has to write it yet, so it isn't offered in silence."""
    written = imported(f'{{"resourceList": [{{"resourceName": "a", "selectors": {{{selector}}}}}]}}\n')
    assert written.resources == {}
    assert [(one["what"], one["why"]) for one in written.not_kept] == [(key, f"{why}; what it selects is left out")]
