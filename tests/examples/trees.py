"""The trees of files in which the examples find their devices, and what each device gives a container."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpgateway import Allocation, DeviceNode, Mount

P = "/sys/devices/pci0000:00"


@dataclass(frozen=True)
class Case:
    """Of one resource: its devices, Unhealthy ones with their reason, and what a container gets of the Healthy ones."""

    resource: str
    devices: Mapping[str, str | None]
    allocation: Allocation
    numa: Sequence[tuple[int, ...]] = ()


@dataclass(frozen=True)
class Example:
    tree: str
    cases: Sequence[Case] = field(default_factory=list)


def nodes(*paths: str, permissions: str = "rw") -> tuple[DeviceNode, ...]:
    """As on the host, or ``/dev/here=/dev/there`` for another path in the container."""
    pairs = [path.partition("=") for path in paths]
    return tuple(DeviceNode(here, there or None, permissions) for here, _, there in pairs)


def pci(address: str, driver: str | None, text: str = "", **attributes: str) -> str:
    """A PCI function; ``@`` in the text is its directory."""
    here = f"{P}/{address}"
    lines = [f"{here}/{name} = {value}" for name, value in attributes.items()]
    if driver:
        lines.append(f"{here}/driver -> /sys/bus/pci/drivers/{driver}")
    lines += [f"{here}/subsystem -> /sys/bus/pci", f"/sys/bus/pci/devices/{address} -> {here}"]
    return "\n".join([*lines, text.replace("@", here)]) + "\n"


def vfio(group: str) -> str:
    return f"@/iommu_group -> /sys/kernel/iommu_groups/{group}\nc /dev/vfio/{group} 240:{group}\n"


AMD = Example(
    pci("0000:19:00.0", "amdgpu", "@/drm/card1/\n@/drm/renderD128/", numa_node="0")
    + pci("0000:1a:00.0", "amdgpu", "@/drm/card2/", numa_node="-1")
    + pci("0000:1b:00.0", "snd_hda_intel")
    + """
    c /dev/kfd 235:0
    c /dev/dri/card1 226:1
    c /dev/dri/renderD128 226:128
    c /dev/dri/card2 226:2
    """,
    [
        Case(
            "amd.com/gpu",
            {
                "0000:19:00.0": None,
                "0000:1a:00.0": "/dev/dri/{entry:drm/renderD*} can't be filled: {entry:drm/renderD*} finds nothing at "
                "0000:1a:00.0",
            },
            Allocation(device_nodes=nodes("/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128")),
            [(0,), ()],
        )
    ],
)


def _card(number: int, vendor: str, text: str = "") -> str:
    return pci(
        f"0000:0{number}:02.0",
        "i915",
        f"@/drm/card{number}/card{number}-DP-1/\n@/drm/renderD{128 + number}/\n@/drm/controlD{64 + number}/\n"
        f"@/drm/card{number}/device -> @\n/sys/class/drm/card{number} -> @/drm/card{number}\n"
        f"/sys/class/drm/card{number}-DP-1 -> @/drm/card{number}/card{number}-DP-1\n"
        f"c /dev/dri/card{number} 226:{number}\nc /dev/dri/renderD{128 + number} 226:{128 + number}\n{text}",
        vendor=vendor,
    )


INTEL_GPU = Example(
    _card(0, "0x8086", "@/i915.mei-gscfi.768/mei/mei1/\nc /dev/mei1 240:1")
    + _card(1, "0x8086", "@/sriov_numvfs = 0")
    + _card(2, "0x8086", "@/sriov_numvfs = 2")
    + _card(3, "0x10de")
    + """
    /sys/class/drm/version = drm 1.1.0 20060810
    /dev/dri/by-path/pci-0000:00:02.0-card -> /dev/dri/card0
    /dev/dri/by-path/pci-0000:00:02.0-render -> /dev/dri/renderD128
    """,
    [
        Case(
            "gpu.intel.com/i915",
            {"0000:00:02.0": None, "0000:01:02.0": None},
            Allocation(
                device_nodes=nodes(
                    "/dev/dri/card0",
                    "/dev/dri/renderD128",
                    "/dev/dri/by-path/pci-0000:00:02.0-card",
                    "/dev/dri/by-path/pci-0000:00:02.0-render",
                    "/dev/dri/card1",
                    "/dev/dri/renderD129",
                )
            ),
        ),
        Case(
            "gpu.intel.com/i915_monitoring",
            {"all": None},
            Allocation(
                device_nodes=nodes(
                    "/dev/dri/card0", "/dev/dri/renderD128", "/dev/mei1", "/dev/dri/card1", "/dev/dri/renderD129"
                )
            ),
        ),
    ],
)


def _qat(function: int, device: str, parent: str, driver: str = "vfio-pci") -> str:
    text = f"@/physfn -> {P}/{parent}\n" + vfio(str(210 + function))
    return pci(f"0000:6b:00.{function}", driver, text, vendor="0x8086", device=device)


QAT = Example(
    pci("0000:6b:00.0", "4xxx", "@/qat/state = up\n@/qat/cfg_services = sym;asym", vendor="0x8086", device="0x4940")
    + pci("0000:7b:00.0", "4xxx", "@/qat/state = up\n@/qat/cfg_services = dc", vendor="0x8086", device="0x4940")
    + _qat(1, "0x4941", "0000:6b:00.0")
    + _qat(2, "0x4941", "0000:6b:00.0")
    + _qat(3, "0x4941", "0000:6b:00.0", "4xxxvf")
    + _qat(4, "0x4941", "0000:7b:00.0")
    + _qat(5, "0x1234", "0000:6b:00.0")
    + "c /dev/vfio/vfio 10:196",
    [
        Case(
            "qat.intel.com/cy",
            {"0000:6b:00.1": None, "0000:6b:00.2": None},
            Allocation(
                env={"QAT0": "0000:6b:00.1", "QAT1": "0000:6b:00.2"},
                device_nodes=nodes("/dev/vfio/211", "/dev/vfio/vfio", "/dev/vfio/212"),
            ),
        )
    ],
)


def _misc(name: str, minor: int) -> str:
    here = f"/sys/devices/virtual/misc/{name}"
    return f"""
        {here}/uevent = MAJOR=10\\nMINOR={minor}\\nDEVNAME={name}
        /sys/class/misc/{name} -> {here}
        c /dev/{name} 10:{minor}
    """


SGX = Example(
    _misc("sgx_enclave", 125) + _misc("kvm", 232),
    [
        Case("sgx.intel.com/enclave", {"sgx-enclave": None}, Allocation(device_nodes=nodes("/dev/sgx_enclave"))),
        Case("sgx.intel.com/provision", {}, Allocation()),
    ],
)


def _wq(number: int, state: str, mode: str, kind: str) -> str:
    here = f"{P}/0000:6a:01.0/dsa0/wq0.{number}"
    return f"""
        {here}/state = {state}
        {here}/mode = {mode}
        {here}/type = {kind}
        {here}/dsa!wq0.{number}/dev = 240:{number}
        /sys/bus/dsa/devices/wq0.{number} -> {here}
        c /dev/dsa/wq0.{number} 240:{number}
    """


DSA = Example(
    _wq(0, "enabled", "shared", "user")
    + _wq(1, "enabled", "dedicated", "user")
    + _wq(2, "disabled", "shared", "user")
    + _wq(3, "enabled", "shared", "kernel")
    + pci("0000:6c:01.0", "vfio-pci", vfio("45"), vendor="0x8086", device="0x0b25", numa_node="1")
    + pci("0000:6d:01.0", "idxd", vfio("46"), vendor="0x8086", device="0x0b25")
    + pci("0000:6e:01.0", None, vendor="0x8086", device="0x0b25")
    + f"/sys/bus/dsa/devices/dsa0 -> {P}/0000:6a:01.0/dsa0\nc /dev/vfio/vfio 10:196",
    [
        Case(
            "dsa.intel.com/wq-user-shared",
            {"wq-user-shared-wq0.0": None},
            Allocation(device_nodes=nodes("/dev/dsa/wq0.0", "/dev/dsa/wq0.0=/dev/char/240:0")),
        ),
        Case(
            "dsa.intel.com/vfio",
            {"0000:6c:01.0": None},
            Allocation(env={"VFIO_BDF0": "0000:6c:01.0"}, device_nodes=nodes("/dev/vfio/45", "/dev/vfio/vfio")),
            [(1,)],
        ),
    ],
)


def _dlb(number: int, text: str = "") -> str:
    here = f"@/dlb2/dlb{number}"
    return pci(
        f"0000:7{number}:00.0",
        "dlb2",
        f"{here}/device -> @\n/sys/class/dlb2/dlb{number} -> {here}\nc /dev/dlb{number} 240:{number}\n{text}",
    )


DLB = Example(
    _dlb(0, "@/sriov_numvfs = 0") + _dlb(1) + _dlb(2, "@/sriov_numvfs = 1"),
    [
        Case("dlb.intel.com/pf", {"/dev/dlb0": None}, Allocation(device_nodes=nodes("/dev/dlb0"))),
        Case("dlb.intel.com/vf", {"/dev/dlb1": None}, Allocation(device_nodes=nodes("/dev/dlb1"))),
    ],
)


def _accel(number: int, **attributes: str) -> str:
    here = f"@/accel/accel{number}"
    return pci(
        f"0000:0{number}:0b.0",
        "intel_vpu",
        f"{here}/device -> @\n/sys/class/accel/accel{number} -> {here}\nc /dev/accel/accel{number} 261:{number}",
        **attributes,
    )


NPU = Example(
    _accel(0, vendor="0x8086", device="0x7e4c") + _accel(1, vendor="0x1002", device="0x7e4c"),
    [Case("npu.intel.com/accel", {"0000:00:0b.0": None}, Allocation(device_nodes=nodes("/dev/accel/accel0")))],
)


def _stick(port: str, product: str, number: int) -> str:
    here = f"{P}/0000:00:14.0/usb1/{port}"
    return f"""
        {here}/idVendor = 46f4
        {here}/idProduct = {product}
        {here}/busnum = 1
        {here}/devnum = {number}
        {here}/subsystem -> /sys/bus/usb
        {here}/uevent = MAJOR=189\\nMINOR={number - 1}\\nDEVNAME=bus/usb/001/00{number}\\nBUSNUM=001\\nDEVNUM=00{number}
        /sys/bus/usb/devices/{port} -> {here}
        c /dev/bus/usb/001/00{number} 189:{number - 1}
    """


UUID = "b1d9f6e0-0c5a-4f4e-8d3c-2a0d4c0b7a11"
KUBEVIRT = Example(
    pci("0000:41:00.0", "vfio-pci", vfio("45") + "@/vfio-dev/vfio3/", uevent="DRIVER=vfio-pci\\nPCI_ID=10DE:1EB8")
    + pci("0000:41:00.1", "vfio-pci", vfio("45"), uevent="DRIVER=vfio-pci\\nPCI_ID=10DE:1EB8")
    + pci("0000:42:00.0", "vfio-pci", vfio("46"), uevent="DRIVER=vfio-pci\\nPCI_ID=10DE:1EB8")
    + pci("0000:43:00.0", "nvidia", vfio("47"), uevent="DRIVER=nvidia\\nPCI_ID=10DE:1EB8")
    + pci("0000:44:00.0", None, uevent="PCI_ID=10DE:1EB8")
    + f"""
    c /dev/vfio/vfio 10:196
    c /dev/vfio/devices/vfio3 241:3
    {P}/0000:00:03.0/{UUID}/mdev_type/name = GRID T4-1Q
    {P}/0000:00:03.0/{UUID}/iommu_group -> /sys/kernel/iommu_groups/50
    /sys/bus/mdev/devices/{UUID} -> {P}/0000:00:03.0/{UUID}
    c /dev/vfio/50 240:50
    {P}/0000:00:14.0/usb1/idVendor = 1d6b
    /sys/bus/usb/devices/usb1 -> {P}/0000:00:14.0/usb1
    """
    + _stick("1-1", "0001", 4)
    + _stick("1-2", "0002", 7)
    + _stick("1-3", "0001", 2),
    [
        Case(
            "nvidia.com/TU104GL_Tesla_T4",
            {"45": None, "46": None},
            Allocation(
                env={"PCI_RESOURCE_NVIDIA_COM_TU104GL_TESLA_T4": "0000:41:00.0,0000:41:00.1,0000:42:00.0"},
                device_nodes=nodes(
                    "/dev/vfio/vfio", "/dev/vfio/45", "/dev/vfio/devices/vfio3", "/dev/vfio/46", permissions="mrw"
                ),
            ),
        ),
        Case(
            "nvidia.com/GRID_T4-1Q",
            {"50": None},
            Allocation(
                env={"MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4-1Q": UUID},
                device_nodes=nodes("/dev/vfio/vfio", "/dev/vfio/50", permissions="mrw"),
            ),
        ),
        Case(
            "kubevirt.io/storage",
            {"1-1": None},
            Allocation(
                env={"USB_RESOURCE_KUBEVIRT_IO_STORAGE": "1:4,1:7"},
                device_nodes=nodes("/dev/bus/usb/001/004", "/dev/bus/usb/001/007", permissions="mrw"),
            ),
        ),
    ],
)

GKE = Example(
    "".join(
        pci(
            f"0000:c{number}:00.0",
            "nvidia",
            f"/proc/driver/nvidia/gpus/0000:c{number}:00.0/information = Model:\t A100\\nDevice Minor: \t {minor}"
            f"\nc /dev/nvidia{minor} 195:{minor}",
            numa_node=str(number - 1),
            **{"class": "0x030200"},
        )
        for number, minor in ((1, 1), (2, 0))
    )
    + pci("0000:c3:00.0", "nvidia-nvswitch", **{"class": "0x068000"})
    + "c /dev/nvidiactl 195:255\nc /dev/nvidia-uvm 511:0\nc /dev/nvidia-uvm-tools 511:1",
    [
        Case(
            "nvidia.com/gpu",
            {"0000:c1:00.0": None, "0000:c2:00.0": None},
            Allocation(
                device_nodes=nodes(
                    "/dev/nvidia1",
                    "/dev/nvidiactl",
                    "/dev/nvidia-uvm",
                    "/dev/nvidia-uvm-tools",
                    "/dev/nvidia0",
                    permissions="mrw",
                ),
                mounts=(
                    Mount("/home/kubernetes/bin/nvidia", "/usr/local/nvidia"),
                    Mount("/home/kubernetes/bin/nvidia/vulkan/icd.d", "/etc/vulkan/icd.d"),
                ),
            ),
            [(0,), (1,)],
        )
    ],
)


def _rdma(address: str, number: int, text: str = "", vendor: str = "0x15b3", driver: str = "mlx5_core") -> str:
    here = f"@/infiniband_verbs/uverbs{number}"
    return pci(
        address,
        driver,
        f"{here}/ibdev = mlx5_{number}\n{here}/device -> @\n/sys/class/infiniband_verbs/uverbs{number} -> {here}\n"
        f"{here}/subsystem -> /sys/class/infiniband_verbs\n@/infiniband/mlx5_{number}/\n"
        f"@/infiniband_mad/umad{number}/\n@/infiniband_mad/issm{number}/\n"
        f"c /dev/infiniband/uverbs{number} 231:{192 + number}\nc /dev/infiniband/umad{number} 231:{number}\n"
        f"c /dev/infiniband/issm{number} 231:{64 + number}\n{text}",
        vendor=vendor,
        **{"class": "0x020000"},
    )


RDMA_CM = "c /dev/infiniband/rdma_cm 10:58\n"
RDMA_VF = Example(
    _rdma("0000:3b:00.0", 0, "@/net/eth1/")
    + _rdma("0000:3b:00.1", 1, f"@/physfn -> {P}/0000:3b:00.0", driver="mlx5_core")
    + _rdma("0000:3c:00.0", 2, "@/net/eth2/")
    + _rdma("0000:3c:00.1", 3, f"@/physfn -> {P}/0000:3c:00.0")
    + "/sys/class/infiniband_verbs/abi_version = 6\n"
    + RDMA_CM,
    [
        Case(
            "tencent.com/rdma",
            {"0000:3b:00.1": None},
            Allocation(device_nodes=nodes("/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm")),
        )
    ],
)
RDMA_SHARED = Example(
    _rdma("0000:3b:00.0", 0)
    + _rdma("0000:3b:00.1", 1)
    + _rdma("0000:4b:00.0", 2, vendor="0x8086", driver="irdma")
    + pci("0000:5b:00.0", "mlx5_core", vendor="0x15b3", **{"class": "0x020000"})
    + RDMA_CM,
    [
        Case(
            "rdma/hca_shared_devices",
            {"all": None},
            Allocation(
                device_nodes=nodes(
                    "/dev/infiniband/issm0",
                    "/dev/infiniband/umad0",
                    "/dev/infiniband/uverbs0",
                    "/dev/infiniband/rdma_cm",
                    "/dev/infiniband/issm1",
                    "/dev/infiniband/umad1",
                    "/dev/infiniband/uverbs1",
                    permissions="rwm",
                )
            ),
        )
    ],
)


def _vf(function: int, driver: str | None, text: str = "") -> str:
    text = f"@/physfn -> {P}/0000:18:00.0\n{text}"
    return pci(f"0000:18:02.{function}", driver, text, vendor="0x8086", numa_node="0", **{"class": "0x020000"})


SRIOV = Example(
    pci("0000:18:00.0", "i40e", "@/net/eth1/\n@/sriov_numvfs = 4", vendor="0x8086", **{"class": "0x020000"})
    + _vf(0, "iavf", "@/net/eth1v0/")
    + _vf(1, "iavf")  # a pod has its interface
    + _vf(2, "vfio-pci", vfio("61"))
    + _vf(3, None)
    + "c /dev/vfio/vfio 10:196",
    [
        Case(
            "intel.com/intel_sriov_netdevice",
            {"0000:18:02.0": None, "0000:18:02.1": None},
            Allocation(env={"PCIDEVICE_INTEL_COM_INTEL_SRIOV_NETDEVICE": "0000:18:02.0,0000:18:02.1"}),
            [(0,), (0,)],
        ),
        Case(
            "intel.com/intel_sriov_dpdk",
            {"0000:18:02.2": None},
            Allocation(
                env={"PCIDEVICE_INTEL_COM_INTEL_SRIOV_DPDK": "0000:18:02.2"},
                device_nodes=nodes("/dev/vfio/vfio", "/dev/vfio/61"),
            ),
            [(0,)],
        ),
    ],
)

EXAMPLES = {
    "amd-gpu": AMD,
    "gke-nvidia-gpu": GKE,
    "intel-dlb": DLB,
    "intel-dsa": DSA,
    "intel-gpu": INTEL_GPU,
    "intel-npu": NPU,
    "intel-qat": QAT,
    "intel-sgx": SGX,
    "kubevirt-host-devices": KUBEVIRT,
    "rdma-per-vf": RDMA_VF,
    "rdma-shared": RDMA_SHARED,
    "sriov-network": SRIOV,
}
