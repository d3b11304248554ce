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
    offered: Sequence[str] = ()
    """The first ids that the kubelet sees, where they are those of the plugin."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The device-info files."""


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
            {"0000:19:00.0": None, "0000:1a:00.0": "entry drm/renderD* of 0000:1a:00.0 finds nothing"},
            Allocation(device_nodes=nodes("/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128")),
            [(0,), ()],
        )
    ],
)


def _kfd(node: int, minor: int, location: int, domain: int = 0) -> str:
    return (
        f"/sys/class/kfd/kfd/topology/nodes/{node}/properties = cpu_cores_count 0\\nsimd_count 416\\n"
        f"gfx_target_version 90010\\nlocation_id {location}\\ndomain {domain}\\ndrm_render_minor {minor}\n"
    )


def _xcp(number: int, card: int, minor: int) -> str:
    here = f"/sys/devices/platform/amdgpu_xcp_{number}"
    drm = f"{here}/drm/renderD{minor}"
    return f"""
        {here}/subsystem -> /sys/bus/platform
        {here}/drm/card{card}/
        {drm}/device -> {here}
        {drm}/subsystem -> /sys/class/drm
        /sys/class/drm/renderD{minor} -> {drm}
        c /dev/dri/card{card} 226:{card}
        c /dev/dri/renderD{minor} 226:{minor}
    """


def _amd(address: str, card: int, minor: int, mode: str) -> str:
    return pci(
        address,
        "amdgpu",
        f"@/drm/card{card}/\n@/drm/renderD{minor}/device -> @\n/sys/class/drm/renderD{minor} -> @/drm/renderD{minor}\n"
        f"@/drm/renderD{minor}/subsystem -> /sys/class/drm\n"
        f"c /dev/dri/card{card} 226:{card}\nc /dev/dri/renderD{minor} 226:{minor}",
        numa_node="3",
        current_compute_partition=mode,
        current_memory_partition="NPS1",
    )


AMD_PARTITIONS = Example(
    _amd("0000:19:00.0", 1, 128, "CPX")
    + _amd("0000:1a:00.0", 5, 132, "SPX")
    + _amd("0002:19:00.0", 6, 133, "CPX").replace("3\n", "5\n", 1)
    + _xcp(30, 2, 129)
    + _xcp(31, 3, 130)
    + _xcp(32, 7, 134).replace("/sys/bus/platform", "/sys/bus/gone")  # half removed
    + "/sys/class/kfd/kfd/topology/nodes/0/properties = cpu_cores_count 64\\nlocation_id 0\\ndrm_render_minor 0\n"
    + _kfd(4, 128, 6400)
    + _kfd(5, 129, 6401)
    + _kfd(6, 132, 6656)
    + _kfd(7, 133, 6400, 2)
    + _kfd(8, 134, 6401, 2)  # there is none for renderD130
    + "c /dev/kfd 235:0",
    [
        Case(
            "amd.com/cpx_nps1",
            dict.fromkeys(["0000:19:00.0", "0002:19:00.0", "amdgpu_xcp_30", "amdgpu_xcp_32"]),
            Allocation(
                device_nodes=nodes(
                    "/dev/kfd",
                    "/dev/dri/card1",
                    "/dev/dri/renderD128",
                    "/dev/dri/card6",
                    "/dev/dri/renderD133",
                    "/dev/dri/card2",
                    "/dev/dri/renderD129",
                    "/dev/dri/card7",
                    "/dev/dri/renderD134",
                )
            ),
            [(3,), (5,), (3,), (5,)],
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
            offered=("0000:00:02.0-0", "0000:00:02.0-1", "0000:01:02.0-0"),
        )
    ],
)
INTEL_GPU_MONITORING = Example(
    INTEL_GPU.tree
    + _card(4, "0x8086").replace(f"{P}/0000:04:02.0/drm/renderD132/\n", "")
    + f"{P}/0000:00:02.0/i915.mei-gsc.768/mei/mei0/\n",  # it has no node
    [
        Case(
            "gpu.intel.com/i915_monitoring",
            {"all": None},
            Allocation(
                device_nodes=nodes(
                    "/dev/dri/card0",
                    "/dev/dri/renderD128",
                    "/dev/mei1",
                    "/dev/dri/card1",
                    "/dev/dri/renderD129",
                    "/dev/dri/card4",
                )
            ),
        )
    ],
)


def _qat(function: int, device: str, parent: str, driver: str = "vfio-pci", node: str = "") -> str:
    group = str(210 + function)
    text = (f"@/physfn -> {P}/{parent}\n" if parent else "") + vfio(group).replace(
        f"vfio/{group} 2", f"vfio/{node}{group} 2"
    )
    return pci(f"0000:6b:00.{function}", driver, text, vendor="0x8086", device=device)


def _qat_pf(bus: str, services: str, text: str = "") -> str:
    debug = f"/sys/kernel/debug/qat_4xxx_0000:{bus}:00.0"
    configured = f"@/qat/state = up\n@/qat/cfg_services = {services}\n" if services else ""
    return pci(f"0000:{bus}:00.0", "4xxx", configured + text.replace("DEBUG", debug), vendor="0x8086", device="0x4940")


QAT = Example(
    _qat_pf("6b", "sym;asym", "DEBUG/heartbeat/status = 0")
    + _qat_pf("7b", "dc")
    + _qat_pf("8b", "asym;sym", "DEBUG/heartbeat/status = -1")
    + _qat_pf("9b", "", "DEBUG/dev_cfg = [GENERAL]\\nServicesEnabled = dc\\nOther = x")
    + _qat_pf("ab", "", "@/qat/state = down\n@/qat/cfg_services = dc\nDEBUG/dev_cfg = ServicesEnabled = asym;sym")
    + _qat_pf("bb", "sym;asym", "DEBUG/dev_cfg = ServicesEnabled = dc")  # what the PF says counts
    + _qat_pf("cb", "")  # an old kernel, and nothing for debugging
    + _qat_pf("db", "", "@/qat/state = down\n@/qat/cfg_services = dc")
    + _qat(1, "0x4941", "0000:6b:00.0")
    + _qat(2, "0x4941", "0000:6b:00.0", node="noiommu-")
    + _qat(3, "0x4941", "0000:6b:00.0", "4xxxvf")
    + _qat(4, "0x4941", "0000:7b:00.0")
    + _qat(5, "0x1234", "0000:6b:00.0")
    + _qat(6, "0x4943", "0000:9b:00.0")
    + _qat(7, "0x4941", "0000:8b:00.0")
    + _qat(8, "0x4941", "")
    + _qat(9, "0x4941", "", node="noiommu-")
    + _qat(10, "0x4941", "0000:ab:00.0")
    + _qat(11, "0x4941", "0000:bb:00.0")
    + _qat(12, "0x4941", "0000:cb:00.0")
    + _qat(13, "0x4941", "0000:db:00.0")
    + "c /dev/vfio/vfio 10:196",
    [
        Case(
            "qat.intel.com/cy",
            {
                "0000:6b:00.1": None,
                "0000:6b:00.2": None,
                "0000:6b:00.7": "/sys/kernel/debug/qat_4xxx_0000:8b:00.0/heartbeat/status: found '-1', expected "
                "none of -1 or nothing",
                "0000:6b:00.10": None,
                "0000:6b:00.11": None,
            },
            Allocation(
                env={"QAT0": "0000:6b:00.1", "QAT1": "0000:6b:00.10", "QAT2": "0000:6b:00.11", "QAT3": "0000:6b:00.2"},
                device_nodes=nodes(
                    "/dev/vfio/211", "/dev/vfio/vfio", "/dev/vfio/220", "/dev/vfio/221", "/dev/vfio/noiommu-212"
                ),
            ),
        ),
        Case(
            "qat.intel.com/dc",
            {"0000:6b:00.4": None, "0000:6b:00.6": None},
            Allocation(
                env={"QAT0": "0000:6b:00.4", "QAT1": "0000:6b:00.6"},
                device_nodes=nodes("/dev/vfio/214", "/dev/vfio/vfio", "/dev/vfio/216"),
            ),
        ),
        Case(
            "qat.intel.com/generic",
            dict.fromkeys(["0000:6b:00.8", "0000:6b:00.9", "0000:6b:00.12", "0000:6b:00.13"]),
            Allocation(
                env={"QAT0": "0000:6b:00.12", "QAT1": "0000:6b:00.13", "QAT2": "0000:6b:00.8", "QAT3": "0000:6b:00.9"},
                device_nodes=nodes(
                    "/dev/vfio/222", "/dev/vfio/vfio", "/dev/vfio/223", "/dev/vfio/218", "/dev/vfio/noiommu-219"
                ),
            ),
        ),
    ],
)

USB = f"{P}/0000:00:14.0/usb1"


def _movidius(port: str, product: str, vendor: str = "03e7") -> str:
    return f"""
        {USB}/{port}/idVendor = {vendor}
        {USB}/{port}/idProduct = {product}
        {USB}/{port}/serial = 03e72485
        {USB}/{port}/subsystem -> /sys/bus/usb
        /sys/bus/usb/devices/{port} -> {USB}/{port}
    """


def _same(*paths: str) -> tuple[Mount, ...]:
    return tuple(Mount(path, path, read_only=False) for path in paths)


_UNITE = _same(
    "/var/tmp/hddlunite_service.sock",
    "/var/tmp/hddlunite_service_ready.mutex",
    "/var/tmp/hddlunite_service_alive.mutex",
    "/var/tmp/hddlunite_service_start_exit.mutex",
)
VPU = Example(
    _movidius("1-1", "2485")
    + _movidius("1-2", "f63b")
    + _movidius("1-3", "2485", "0403")
    + pci("0000:01:00.0", None, vendor="0x8086", device="0x6240")
    + pci("0000:02:00.0", None, vendor="0x8086", device="0x4fc0")
    + pci("0000:02:00.1", None, vendor="0x8086", device="0x4fc1")
    + pci("0000:03:00.0", None, vendor="0x8086", device="0x4fc0")
    + "c /dev/ion 10:62\nc /dev/xlnk 240:0\n/var/tmp/hddlunite_service.sock = \n"
    + "\n".join(f"/var/tmp/hddlunite_service_{name}.mutex = " for name in ("ready", "alive", "start_exit")),
    [
        Case(
            "vpu.intel.com/hddl",
            {"1-1": "/var/tmp/hddl_service.sock isn't there", "1-2": "/var/tmp/hddl_service.sock isn't there"},
            Allocation(),
        ),
        Case("vpu.intel.com/kmb", {"0000:01:00.0": None}, Allocation(device_nodes=nodes("/dev/xlnk"), mounts=_UNITE)),
        Case(
            "vpu.intel.com/tbh",
            {"0000:02:00.0+0000:02:00.1": None, "0000:03:00.0": "expected 2 objects, found 1"},
            Allocation(device_nodes=nodes("/dev/xlnk"), mounts=_UNITE),
        ),
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
    _misc("sgx_enclave", 125) + _misc("sgx_provision", 126) + _misc("kvm", 232),
    [
        Case(
            "sgx.intel.com/enclave",
            {"sgx-enclave": None},
            Allocation(device_nodes=nodes("/dev/sgx_enclave")),
            offered=("sgx-enclave-0", "sgx-enclave-1"),
        ),
        Case(
            "sgx.intel.com/provision",
            {"sgx-provision": None},
            Allocation(device_nodes=nodes("/dev/sgx_provision")),
            offered=("sgx-provision-0",),
        ),
    ],
)


def _wq(device: str, number: int, state: str, mode: str, kind: str) -> str:
    name = f"wq{device[-1]}.{number}"
    above = f"{P}/0000:6a:01.{device[-1]}/{device}"
    here, kin = f"{above}/{name}", device[:3]
    return f"""
        {above}/subsystem -> /sys/bus/dsa
        {here}/state = {state}
        {here}/mode = {mode}
        {here}/type = {kind}
        {here}/{kin}!{name}/uevent = MAJOR=24{device[-1]}\\nMINOR={number}\\nDEVNAME={kin}/{name}
        /sys/bus/dsa/devices/{name} -> {here}
        c /dev/{kin}/{name} 24{device[-1]}:{number}
    """


DSA = Example(
    _wq("dsa0", 0, "enabled", "shared", "user")
    + _wq("dsa0", 1, "enabled", "dedicated", "user")
    + _wq("dsa0", 2, "disabled", "shared", "user")
    + _wq("dsa0", 3, "enabled", "shared", "kernel")
    + _wq("iax1", 0, "enabled", "dedicated", "user")
    + f"/sys/bus/dsa/devices/dsa0 -> {P}/0000:6a:01.0/dsa0",
    [
        Case(
            "dsa.intel.com/wq-user-shared",
            {"wq-user-shared-wq0.0": None},
            Allocation(device_nodes=nodes("/dev/dsa/wq0.0", "/dev/dsa/wq0.0=/dev/char/240:0")),
            offered=("wq-user-shared-wq0.0-0", "wq-user-shared-wq0.0-1"),
        ),
        Case(
            "iaa.intel.com/wq-user-dedicated",
            {"wq-user-dedicated-wq1.0": None},
            Allocation(device_nodes=nodes("/dev/iax/wq1.0", "/dev/iax/wq1.0=/dev/char/241:0")),
            offered=("wq-user-dedicated-wq1.0-0",),
        ),
        Case(
            "dsa.intel.com/wq-kernel-shared",
            {"wq-kernel-shared-wq0.3": None},
            Allocation(),
            offered=("wq-kernel-shared-wq0.3-0",),
        ),
    ],
)
DSA_VFIO = Example(
    pci("0000:6c:01.0", "vfio-pci", vfio("45"), vendor="0x8086", device="0x0b25", numa_node="1")
    + pci("0000:6d:01.0", "idxd", vfio("46"), vendor="0x8086", device="0x0b25")
    + pci("0000:6e:01.0", None, vendor="0x8086", device="0x0b25")
    + "c /dev/vfio/vfio 10:196",
    [
        Case(
            "dsa.intel.com/vfio",
            {"0000:6c:01.0": None},
            Allocation(env={"VFIO_BDF0": "0000:6c:01.0"}, device_nodes=nodes("/dev/vfio/45", "/dev/vfio/vfio")),
            [(1,)],
        )
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
    _dlb(0, "@/sriov_numvfs = 0")
    + _dlb(1)
    + _dlb(2, "@/sriov_numvfs = 1")
    + "/sys/class/dlb2/dlb3/device -> /sys/devices/gone\nc /dev/dlb3 240:3",  # which kind it was, nobody knows
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
    [
        Case(
            "npu.intel.com/accel",
            {"0000:00:0b.0": None},
            Allocation(device_nodes=nodes("/dev/accel/accel0")),
            offered=("0000:00:0b.0-0", "0000:00:0b.0-1"),
        )
    ],
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
GVTG = UUID.replace("b1d9", "c2ea")
T4 = "DRIVER=vfio-pci\\nPCI_ID=10DE:1EB8"
KUBEVIRT_PCI = Example(
    pci("0000:41:00.0", "vfio-pci", vfio("45") + "@/vfio-dev/vfio3/", uevent=T4, numa_node="0")
    + pci("0000:41:00.1", "vfio-pci", vfio("45"), uevent=T4, numa_node="0")
    + pci("0000:42:00.0", "vfio-pci", vfio("46"), uevent=T4, numa_node="-1")
    + pci("0000:43:00.0", "nvidia", vfio("47") + "@/sriov_totalvfs = 16", uevent="PCI_ID=10DE:1EB8")
    + pci("0000:43:00.4", "nvidia", vfio("48") + "@/nvidia/current_vgpu_type = 1142", uevent="PCI_ID=10DE:1EB8")
    + pci("0000:43:00.5", "nvidia", vfio("49") + "@/nvidia/current_vgpu_type = 0", uevent="PCI_ID=10DE:1EB8")
    + pci("0000:44:00.0", None, uevent="PCI_ID=10DE:1EB8")
    + "c /dev/vfio/vfio 10:196\nc /dev/vfio/devices/vfio3 241:3",
    [
        Case(
            "nvidia.com/TU104GL_Tesla_T4",
            {"45": None, "46": None, "48": None},
            Allocation(
                env={"PCI_RESOURCE_NVIDIA_COM_TU104GL_TESLA_T4": "0000:41:00.0,0000:41:00.1,0000:42:00.0,0000:43:00.4"},
                device_nodes=nodes(
                    "/dev/vfio/vfio",
                    "/dev/vfio/45",
                    "/dev/vfio/devices/vfio3",
                    "/dev/vfio/46",
                    "/dev/vfio/48",
                    permissions="mrw",
                ),
            ),
            [(0,), (), ()],
        )
    ],
)


def _mdev(uuid: str, group: str, kind: str) -> str:
    here = f"{P}/0000:00:03.0/{uuid}"
    return f"""
        {here}/{kind}
        {here}/iommu_group -> /sys/kernel/iommu_groups/{group}
        /sys/bus/mdev/devices/{uuid} -> {here}
        c /dev/vfio/{group} 240:{group}
    """


KUBEVIRT_MDEV = Example(
    _mdev(UUID, "50", "mdev_type/name = GRID T4-1Q")
    + _mdev(GVTG, "51", f"mdev_type -> {P}/0000:00:03.0/mdev_supported_types/i915-GVTg_V5_4")
    + f"{P}/0000:00:03.0/mdev_supported_types/i915-GVTg_V5_4/\n{P}/0000:00:03.0/numa_node = 1\nc /dev/vfio/vfio 10:196",
    [
        Case(
            "nvidia.com/GRID_T4-1Q",
            {"50": None},
            Allocation(
                env={"MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4-1Q": UUID},
                device_nodes=nodes("/dev/vfio/vfio", "/dev/vfio/50", permissions="mrw"),
            ),
            [(1,)],
        ),
        Case(
            "intel.com/U3P_GVTg",
            {"51": None},
            Allocation(
                env={"MDEV_PCI_RESOURCE_INTEL_COM_U3P_GVTG": GVTG},
                device_nodes=nodes("/dev/vfio/vfio", "/dev/vfio/51", permissions="mrw"),
            ),
            [(1,)],
        ),
    ],
)
KUBEVIRT_USB = Example(
    f"{P}/0000:00:14.0/usb1/idVendor = 1d6b\n/sys/bus/usb/devices/usb1 -> {P}/0000:00:14.0/usb1\n"
    + _stick("1-1", "0001", 4)
    + _stick("1-2", "0002", 7)
    + _stick("1-3", "0001", 2),
    [
        Case(
            "kubevirt.io/storage",
            {"1-1+1-2": None},
            Allocation(
                env={"USB_RESOURCE_KUBEVIRT_IO_STORAGE": "1:4,1:7"},
                device_nodes=nodes("/dev/bus/usb/001/004", "/dev/bus/usb/001/007", permissions="mrw"),
            ),
        )
    ],
)
KUBEVIRT_SOCKETS = Example(
    _misc("kvm", 232)
    + "/sys/fs/cgroup/misc.capacity = sev 10\\ntdx 2\n/var/run/tdx-qgs/qgs.socket = \n"
    + "/var/run/kubevirt/daemons/pr/pr-helper.sock = ",
    [
        Case("devices.kubevirt.io/tdx", {"tdx0": None, "tdx1": None}, Allocation(mounts=_same("/var/run/tdx-qgs"))),
        Case(
            "devices.kubevirt.io/pr-helper",
            {"pr-helper": None},
            Allocation(mounts=_same("/var/run/kubevirt/daemons/pr")),
            offered=("pr-helper0", "pr-helper1"),
        ),
    ],
)


def _listed(name: str, path: str, *, there: bool = True) -> Case:
    """Of a path that is spelled out."""
    id_ = path.removeprefix("/dev/")
    return Case(
        f"devices.kubevirt.io/{name}",
        {id_: None if there else f"no such device node: {path}"},
        Allocation(device_nodes=nodes(path, permissions="rwm") if there else ()),
        offered=(f"{name}0", f"{name}1"),
    )


KUBEVIRT_DEVICES = Example(
    "c /dev/kvm 10:232\nc /dev/net/tun 10:200\nc /dev/vhost-net 10:238",
    [
        _listed("kvm", "/dev/kvm"),
        _listed("tun", "/dev/net/tun"),
        _listed("vhost-net", "/dev/vhost-net"),
        _listed("vhost-vsock", "/dev/vhost-vsock", there=False),
        _listed("sev", "/dev/sev", there=False),
    ],
)
KDP_KVM = Example(
    "c /dev/kvm 10:232",
    [
        Case(
            "devices.kubevirt.io/kvm",
            {"kvm": None},
            Allocation(device_nodes=nodes("/dev/kvm")),
            offered=("kvm0", "kvm1"),
        )
    ],
)
KDP_VFIO = Example(
    pci("0000:41:00.0", "vfio-pci", vfio("45"), vendor="0x10de", device="0x1eb8", numa_node="1")
    + pci("0000:41:00.1", "vfio-pci", vfio("45"), vendor="0x10de", device="0x1eb8", numa_node="1")
    + pci("0000:42:00.0", "nouveau", vfio("46"), vendor="0x10de", device="0x1eb8")
    + pci("0000:43:00.0", "vfio-pci", vfio("47"), vendor="0x10de", device="0x1eb9")
    + "c /dev/vfio/vfio 10:196",
    [
        Case(
            "devices.kubevirt.io/10de_1eb8",
            {"45": None},
            Allocation(device_nodes=nodes("/dev/vfio/45", "/dev/vfio/vfio")),
            [(1,)],
        )
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
    + "c /dev/nvidiactl 195:255\nc /dev/nvidia-uvm 511:0\nc /dev/nvidia-uvm-tools 511:1\n"
    + "/home/kubernetes/bin/nvidia/vulkan/icd.d/\n",
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


_INSTALLED = (
    Mount("/home/kubernetes/bin/nvidia", "/usr/local/nvidia"),
    Mount("/home/kubernetes/bin/nvidia/vulkan/icd.d", "/etc/vulkan/icd.d"),
)
MPS = Example(
    f"{GKE.tree}/tmp/nvidia-mps/\n",
    [
        Case(
            "nvidia.com/gpu",
            {"nvidia0": None, "nvidia1": None},
            Allocation(
                env={"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20268M"},
                device_nodes=nodes(
                    "/dev/nvidia0",
                    "/dev/nvidiactl",
                    "/dev/nvidia-uvm",
                    "/dev/nvidia-uvm-tools",
                    "/dev/nvidia1",
                    permissions="mrw",
                ),
                mounts=(*_INSTALLED, *_same("/tmp/nvidia-mps")),
            ),
            [(1,), (0,)],
            offered=("nvidia0/vgpu0", "nvidia0/vgpu1"),
        )
    ],
)


def _instance(gpu: int, instance: int, minor: int) -> str:
    here = f"/proc/driver/nvidia/capabilities/gpu{gpu}/mig/gi{instance}"
    return (
        f"{here}/access = DeviceFileMinor: {minor}\\nDeviceFileMode: 292\\nDeviceFileModify: 1\n"
        f"{here}/ci0/access = DeviceFileMinor: {minor + 1}\\nDeviceFileMode: 292\n"
        f"c /dev/nvidia-caps/nvidia-cap{minor} 237:{minor}\nc /dev/nvidia-caps/nvidia-cap{minor + 1} 237:{minor + 1}\n"
    )


MIG = Example(
    GKE.tree
    + "\n/proc/driver/nvidia/capabilities/mig/config = DeviceFileMinor: 1\n"
    + _instance(0, 1, 12)
    + _instance(0, 2, 21),
    [
        Case(
            "nvidia.com/gpu",
            {"nvidia0/gi1": None, "nvidia0/gi2": None},
            Allocation(
                device_nodes=nodes(
                    "/dev/nvidia0",
                    "/dev/nvidia-caps/nvidia-cap12",
                    "/dev/nvidia-caps/nvidia-cap13",
                    "/dev/nvidiactl",
                    "/dev/nvidia-uvm",
                    "/dev/nvidia-uvm-tools",
                    "/dev/nvidia-caps/nvidia-cap21",
                    "/dev/nvidia-caps/nvidia-cap22",
                    permissions="mrw",
                ),
                mounts=_INSTALLED,
            ),
            [(1,), (1,)],
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
    + _rdma("0000:3b:00.1", 1, f"@/physfn -> {P}/0000:3b:00.0\n@/subsystem -> /sys/bus/gone")
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
            offered=("0", "1", "2"),
        )
    ],
)


def _vf(function: int, driver: str | None, text: str = "") -> str:
    text = f"@/physfn -> {P}/0000:18:00.0\n{text}"
    return pci(f"0000:18:02.{function}", driver, text, vendor="0x8086", numa_node="0", **{"class": "0x020000"})


def _info(resource: str, **texts: str) -> dict[str, str]:
    """The device-info files of functions, by their addresses with underscores."""
    return {f"{resource.replace('/', '-')}-{id_.replace('_', ':')}-device.json": text for id_, text in texts.items()}


def _pci_info(resource: str, *addresses: str) -> dict[str, str]:
    text = '{"type":"pci","version":"1.1.0","pci":{"pci-address":"@"}}'
    return _info(resource, **{one.replace(":", "_"): text.replace("@", one) for one in addresses})


_PF = pci("0000:18:00.0", "i40e", "@/net/eth1/\n@/sriov_numvfs = 6", vendor="0x8086", **{"class": "0x020000"})
_ROUTES = (
    "/proc/1/net/route = Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"
    "\\neth1v5\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0"
    "\\neth1v5\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0"
    "\\neth1v0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0"  # 0.0.0.0/1, a VPN's
    "\\neth1v0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
)
SRIOV = Example(
    _PF
    + _vf(0, "iavf", "@/net/eth1v0/")
    + _vf(1, "iavf")  # a pod has its interface
    + _vf(2, "vfio-pci", vfio("61"))
    + _vf(3, None)
    + _vf(5, "iavf", "@/net/eth1v5/")  # the node's own way out
    + _vf(6, "iavf", "@/net/eth1v6/")  # as the gateway itself sees it
    + "/proc/net/route = Iface\tDestination\tGateway\\neth1v6\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    + _ROUTES,
    [
        Case(
            "intel.com/intel_sriov_netdevice",
            {"0000:18:02.0": None, "0000:18:02.1": None},
            Allocation(
                env={
                    "PCIDEVICE_INTEL_COM_INTEL_SRIOV_NETDEVICE": "0000:18:02.0,0000:18:02.1",
                    "PCIDEVICE_INTEL_COM_INTEL_SRIOV_NETDEVICE_INFO": '{"0000:18:02.0":{"generic":{"deviceID":'
                    '"0000:18:02.0"}},"0000:18:02.1":{"generic":{"deviceID":"0000:18:02.1"}}}',
                }
            ),
            [(0,), (0,)],
            files=_pci_info("intel.com/intel_sriov_netdevice", "0000:18:02.0", "0000:18:02.1"),
        )
    ],
)
SRIOV_VFIO = Example(
    _PF
    + _vf(0, "iavf", "@/net/eth1v0/")
    + _vf(2, "vfio-pci", vfio("61"))
    + _vf(4, "vfio-pci", vfio("62").replace("vfio/62 ", "vfio/noiommu-62 "))
    + _vf(6, "igb_uio", "@/uio/uio0/\nc /dev/uio0 239:0")
    + "c /dev/vfio/vfio 10:196",
    [
        Case(
            "intel.com/intel_sriov_dpdk",
            {"0000:18:02.2": None, "0000:18:02.4": None},
            Allocation(
                env={
                    "PCIDEVICE_INTEL_COM_INTEL_SRIOV_DPDK": "0000:18:02.2,0000:18:02.4",
                    "PCIDEVICE_INTEL_COM_INTEL_SRIOV_DPDK_INFO": '{"0000:18:02.2":{"generic":{"deviceID":'
                    '"0000:18:02.2"},"vfio":{"dev-mount":"/dev/vfio/61","mount":"/dev/vfio/vfio"}},"0000:18:02.4":'
                    '{"generic":{"deviceID":"0000:18:02.4"},"vfio":{"dev-mount":"/dev/vfio/62","mount":'
                    '"/dev/vfio/vfio"}}}',
                },
                device_nodes=nodes("/dev/vfio/vfio", "/dev/vfio/61", "/dev/vfio/noiommu-62=/dev/vfio/62"),
            ),
            [(0,), (0,)],
            files=_pci_info("intel.com/intel_sriov_dpdk", "0000:18:02.2", "0000:18:02.4"),
        ),
        Case(
            "intel.com/intel_sriov_uio",
            {"0000:18:02.6": None},
            Allocation(
                env={
                    "PCIDEVICE_INTEL_COM_INTEL_SRIOV_UIO": "0000:18:02.6",
                    "PCIDEVICE_INTEL_COM_INTEL_SRIOV_UIO_INFO": '{"0000:18:02.6":{"generic":{"deviceID":'
                    '"0000:18:02.6"},"uio":{"mount":"/dev/uio0"}}}',
                },
                device_nodes=nodes("/dev/uio0"),
            ),
            [(0,)],
            files=_pci_info("intel.com/intel_sriov_uio", "0000:18:02.6"),
        ),
    ],
)
_PF3B = f"@/physfn -> {P}/0000:3b:00.0\n"
_VDPA = """
    /sys/bus/vdpa/drivers/{0}/
    @/vdpa0/driver -> /sys/bus/vdpa/drivers/{0}
    @/vdpa0/vhost-vdpa-0/
    c /dev/vhost-vdpa-0 238:0
"""
SRIOV_RDMA = Example(
    _rdma(
        "0000:3b:00.0",
        0,
        "@/net/eth1/\n@/mlx5_core.sf.4/sfnum = 88\n@/mlx5_core.sf.4/net/eth4/\n@/mlx5_core.sf.4/subsystem -> "
        "/sys/bus/auxiliary\n/sys/bus/auxiliary/devices/mlx5_core.sf.4 -> @/mlx5_core.sf.4\n@/mlx5_core.eth.0/\n"
        "/sys/bus/auxiliary/devices/mlx5_core.eth.0 -> @/mlx5_core.eth.0",
    )
    + _rdma("0000:3b:00.2", 1, _PF3B).replace(f"{P}/0000:3b:00.2/infiniband/mlx5_1/\n", "")  # a pod has it to itself
    + _rdma("0000:3b:00.3", 10, _PF3B).replace(f"{P}/0000:3b:00.3/infiniband_mad/issm10/", "")
    + pci("0000:3b:00.4", "mlx5_core", _PF3B + _VDPA.format("vhost_vdpa"), vendor="0x15b3")
    + pci("0000:3b:00.5", "mlx5_core", _PF3B + _VDPA.format("virtio_vdpa").replace("vdpa-0", "vdpa-1"), vendor="0x15b3")
    + RDMA_CM,
    [
        Case(
            "nvidia.com/rdma_vf",
            {"0000:3b:00.2": None, "0000:3b:00.3": None},
            Allocation(
                env={
                    "PCIDEVICE_NVIDIA_COM_RDMA_VF": "0000:3b:00.2,0000:3b:00.3",
                    "PCIDEVICE_NVIDIA_COM_RDMA_VF_INFO": '{"0000:3b:00.2":{"generic":{"deviceID":"0000:3b:00.2"},'
                    '"rdma":{"issm":"/dev/infiniband/issm1","rdma_cm":"/dev/infiniband/rdma_cm","rdma_dev":"mlx5_1",'
                    '"umad":"/dev/infiniband/umad1","uverbs":"/dev/infiniband/uverbs1"}},"0000:3b:00.3":{"generic":'
                    '{"deviceID":"0000:3b:00.3"},"rdma":{"rdma_cm":"/dev/infiniband/rdma_cm","rdma_dev":"mlx5_10",'
                    '"umad":"/dev/infiniband/umad10","uverbs":"/dev/infiniband/uverbs10"}}}',
                },
                device_nodes=nodes(
                    "/dev/infiniband/issm1",
                    "/dev/infiniband/umad1",
                    "/dev/infiniband/uverbs1",
                    "/dev/infiniband/rdma_cm",
                    "/dev/infiniband/umad10",
                    "/dev/infiniband/uverbs10",
                ),
            ),
            files=_info(
                "nvidia.com/rdma_vf",
                **{
                    "0000_3b_00.2": '{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:3b:00.2","rdma-device":'
                    '"mlx5_1"}}',
                    "0000_3b_00.3": '{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:3b:00.3","rdma-device":'
                    '"mlx5_10"}}',
                },
            ),
        ),
        Case(
            "nvidia.com/vdpa_vhost",
            {"0000:3b:00.4": None},
            Allocation(
                env={
                    "PCIDEVICE_NVIDIA_COM_VDPA_VHOST": "0000:3b:00.4",
                    "PCIDEVICE_NVIDIA_COM_VDPA_VHOST_INFO": '{"0000:3b:00.4":{"generic":{"deviceID":"0000:3b:00.4"},'
                    '"vdpa":{"mount":"/dev/vhost-vdpa-0"}}}',
                },
                device_nodes=nodes("/dev/vhost-vdpa-0"),
            ),
            files=_info(
                "nvidia.com/vdpa_vhost",
                **{
                    "0000_3b_00.4": '{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa0","driver":"vhost",'
                    '"path":"/dev/vhost-vdpa-0","pci-address":"0000:3b:00.4"}}'
                },
            ),
        ),
        Case(
            "nvidia.com/sub_functions",
            {"mlx5_core.sf.4": None},
            Allocation(
                env={
                    "PCIDEVICE_NVIDIA_COM_SUB_FUNCTIONS": "mlx5_core.sf.4",
                    "PCIDEVICE_NVIDIA_COM_SUB_FUNCTIONS_INFO": '{"mlx5_core.sf.4":{"generic":{"deviceID":'
                    '"mlx5_core.sf.4"}}}',
                }
            ),
        ),
    ],
)


def _fpga(bus: str, function: int, minor: int, shell: str, **attributes: str) -> str:
    text = (
        f"@/user_pf = 1\n@/rom.u.0/VBNV = {shell}\n@/rom.u.0/timestamp = 2021\n@/drm/renderD{minor}/\n"
        f"c /dev/dri/renderD{minor} 226:{minor}\n"
    )
    text += "".join(f"@/xmc.u.1/{name} = {value}\n" for name, value in attributes.items())
    return pci(f"0000:{bus}:00.{function}", "xocl", text, vendor="0x10ee", device="0x5005", numa_node="1")


_U250 = "xilinx_u250_gen3x16_xdma_shell_4_1"
XILINX = Example(
    pci(
        "0000:b3:00.0",
        "xclmgmt",
        "@/mgmt_pf = 1\n@/instance = 45824\nc /dev/xclmgmt45824 240:0",
        vendor="0x10ee",
        numa_node="1",
    )
    + _fpga("b3", 1, 128, _U250, serial_num="2130048BN")
    + "c /dev/xfpga/dma.qdma.u45825.0 241:0\n"
    + _fpga("c3", 0, 129, _U250)  # in a virtual machine there is no management function, and no serial number
    + _fpga("d3", 0, 130, "xilinx_u30_gen3x4_base_2", serial_num="XFL1")
    + _fpga("d4", 0, 131, "xilinx_u30_gen3x4_base_2", serial_num="XFL1")
    + _fpga("e3", 0, 132, "vbnvwithoutunderscore")
    + pci("0000:f3:00.0", "xclmgmt", "@/mgmt_pf = 1\n@/instance = 62208", vendor="0x10ee"),
    [
        Case(
            "amd.com/xilinx_u250_gen3x16_xdma_shell_4_1-2021",
            {"0000:b3:00": None, "0000:c3:00": None},
            Allocation(
                device_nodes=nodes(
                    "/dev/dri/renderD128",
                    "/dev/xfpga/dma.qdma.u45825.0",
                    "/dev/xclmgmt45824",
                    "/dev/dri/renderD129",
                    permissions="rwm",
                )
            ),
            [(1,), (1,)],
        ),
        Case(
            "amd.com/xilinx_u30",
            {"XFL1": None},
            Allocation(device_nodes=nodes("/dev/dri/renderD130", "/dev/dri/renderD131", permissions="rwm")),
            [(1,)],
        ),
    ],
)
_ONLOAD = ("/dev/onload", "/dev/onload_cplane", "/dev/onload_epoll", "/dev/sfc_char", "/dev/sfc_affinity")
SOLARFLARE = Example(
    pci("0000:5e:00.0", "sfc", "@/net/ens1f0/", numa_node="0")
    + pci("0000:5e:00.1", "sfc", numa_node="0")
    + pci("0000:5f:00.0", "sfc-other")
    + "/proc/devices = Character devices:\\n 10 misc\\n250 onload\\n251 onload_cplane\\n252 onload_epoll\n"
    + "\n".join(f"c {path} 250:{number}" for number, path in enumerate(_ONLOAD)),
    [
        Case(
            "solarflare/smartNIC",
            {"0000:5e:00.0": None, "0000:5e:00.1": None},
            Allocation(device_nodes=nodes(*_ONLOAD, permissions="mrw")),
            [(0,), (0,)],
        )
    ],
)

EXAMPLES = {
    "amd-gpu": AMD,
    "amd-gpu-partitions": AMD_PARTITIONS,
    "gke-nvidia-gpu": GKE,
    "gke-nvidia-gpu-mig": MIG,
    "gke-nvidia-gpu-mps": MPS,
    "intel-dlb": DLB,
    "intel-dsa": DSA,
    "intel-dsa-vfio": DSA_VFIO,
    "intel-gpu": INTEL_GPU,
    "intel-gpu-monitoring": INTEL_GPU_MONITORING,
    "intel-npu": NPU,
    "intel-qat": QAT,
    "intel-sgx": SGX,
    "intel-vpu": VPU,
    "kubevirt-device-plugins-kvm": KDP_KVM,
    "kubevirt-device-plugins-vfio": KDP_VFIO,
    "kubevirt-devices": KUBEVIRT_DEVICES,
    "kubevirt-mdev": KUBEVIRT_MDEV,
    "kubevirt-pci": KUBEVIRT_PCI,
    "kubevirt-sockets": KUBEVIRT_SOCKETS,
    "kubevirt-usb": KUBEVIRT_USB,
    "rdma-per-vf": RDMA_VF,
    "rdma-shared": RDMA_SHARED,
    "solarflare-onload": SOLARFLARE,
    "sriov-network": SRIOV,
    "sriov-rdma-vdpa": SRIOV_RDMA,
    "sriov-vfio": SRIOV_VFIO,
    "xilinx-fpga": XILINX,
}
