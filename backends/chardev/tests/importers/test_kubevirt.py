"""What virt-handler gives is in its device-manager; here it is written down by hand."""

import pytest

from dpgateway import Allocation, DeviceNode

PLUGIN = "kubevirt"

PERMITTED = """\
apiVersion: kubevirt.io/v1
kind: KubeVirt
spec:
  configuration:
    permittedHostDevices:
"""
PCI = (
    PERMITTED
    + """\
      pciHostDevices:
      - {pciVendorSelector: "10de:1eb8", resourceName: nvidia.com/T4-gpu, externalResourceProvider: true}
      - {pciVendorSelector: "8086:6F54", resourceName: intel.com/qat}
      - {pciVendorSelector: "8086:6f55", resourceName: intel.com/qat}
"""
)


def vfio(path):
    return DeviceNode(path, path, "mrw")


def function(tree, address, number, group, driver="vfio-pci"):
    here = f"/sys/devices/pci0000:00/{address}"
    tree.write(f"""
        {here}/subsystem -> /sys/bus/pci
        {here}/driver -> /sys/bus/pci/drivers/{driver}
        {here}/iommu_group -> /sys/kernel/iommu_groups/{group}
        {here}/uevent = DRIVER={driver}\\nPCI_ID={number}
        /sys/bus/pci/devices/{address} -> {here}
        c /dev/vfio/{group} 240:{group}
        c /dev/vfio/vfio 10:196
    """)
    return here


def test_pci_functions_keep_their_ids(imported, tree):
    here = function(tree, "0000:01:00.0", "10DE:1EB8", 45)
    tree.write(f"{here}/vfio-dev/vfio3/\nc /dev/vfio/devices/vfio3 241:3")
    function(tree, "0000:02:00.0", "10DE:1EB8", 46, "nouveau")
    function(tree, "0000:03:00.0", "8086:6F54", 47)
    function(tree, "0000:03:00.1", "8086:6F55", 47)
    virtual = function(tree, "0000:04:00.0", "10DE:1EB8", 48, "nvidia")
    tree.write(f"{virtual}/nvidia/current_vgpu_type = 1142")
    off = function(tree, "0000:04:00.1", "10DE:1EB8", 49, "nvidia")
    tree.write(f"{off}/nvidia/current_vgpu_type = 0")
    written = imported(PCI)
    assert (written.code, written.not_kept) == (0, [])
    assert written.given("nvidia.com/T4-gpu") == {
        "45": Allocation(
            env={"PCI_RESOURCE_NVIDIA_COM_T4-GPU": "0000:01:00.0"},
            device_nodes=tuple(map(vfio, ("/dev/vfio/vfio", "/dev/vfio/45", "/dev/vfio/devices/vfio3"))),
        ),
        "48": Allocation(
            env={"PCI_RESOURCE_NVIDIA_COM_T4-GPU": "0000:04:00.0"},
            device_nodes=(vfio("/dev/vfio/vfio"), vfio("/dev/vfio/48")),
        ),
    }
    assert written.given("intel.com/qat") == {
        "47": Allocation(
            env={"PCI_RESOURCE_INTEL_COM_QAT": "0000:03:00.0,0000:03:00.1"},
            device_nodes=(vfio("/dev/vfio/vfio"), vfio("/dev/vfio/47")),
        )
    }


def test_comments_name_kubevirts_part(imported):
    gpu, qat = imported(PCI).text.split("  - name: ")[:2]
    assert "  # KubeVirt doesn't serve it, because of externalResourceProvider: true" in gpu
    assert "  # In this object say externalResourceProvider: true for it" in qat


def test_the_last_entry_of_a_model_has_it(imported):
    again = """\
      - {pciVendorSelector: "8086:6f55", resourceName: intel.com/qat}
      - {pciVendorSelector: "8086:6F54", resourceName: intel.com/other}
      - {pciVendorSelector: "10de:1eb8", resourceName: nvidia.com/other}
      mediatedDevices:
      - {mdevNameSelector: GRID T4-1Q, resourceName: nvidia.com/one}
      - {mdevNameSelector: GRID_T4-1Q, resourceName: nvidia.com/two}
"""
    written = imported(PCI + again)
    models = {
        name: sorted({one.env["PCI_ID"].glob[0] for one in made.options.match if one.env})
        for name, made in written.resources.items()
    }
    assert models == {
        "nvidia.com/T4-gpu": ["10DE:1EB8"],
        "intel.com/qat": ["8086:6F55"],
        "intel.com/other": ["8086:6F54"],
        "nvidia.com/other": ["10DE:1EB8"],
        "nvidia.com/two": [],
    }
    assert written.lost == [
        (8, "spec.configuration.permittedHostDevices.pciHostDevices[1]", "intel.com/qat", "the selector 8086:6F54"),
        (14, "spec.configuration.permittedHostDevices.mediatedDevices[0]", "nvidia.com/one", "the selector GRID T4-1Q"),
    ]


def test_mediated_devices(imported, tree):
    for name, group, kind, said in (("aaaa", 7, "nvidia-222", "GRID T4-1Q"), ("bbbb", 8, "i915-GVTg_V5_4", None)):
        here = f"/sys/devices/pci0000:00/0000:00:03.0/{name}"
        types = f"/sys/devices/pci0000:00/0000:00:03.0/mdev_supported_types/{kind}"
        tree.write(f"""
            {here}/subsystem -> /sys/bus/mdev
            {here}/mdev_type -> {types}
            {here}/iommu_group -> /sys/kernel/iommu_groups/{group}
            {types}/available_instances = 1
            /sys/bus/mdev/devices/{name} -> {here}
            c /dev/vfio/{group} 240:{group}
            c /dev/vfio/vfio 10:196
        """)
        if said:
            tree.write(f"{types}/name = {said}")
    written = imported(
        PERMITTED
        + "      mediatedDevices:\n"
        + "      - {mdevNameSelector: GRID_T4-1Q, resourceName: nvidia.com/GRID_T4-1Q}\n"
        + "      - {mdevNameSelector: i915-GVTg_V5_4, resourceName: intel.com/U630}\n"
    )
    assert written.code == 0
    assert written.given("nvidia.com/GRID_T4-1Q") == {
        "7": Allocation(
            env={"MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4-1Q": "aaaa"},
            device_nodes=(vfio("/dev/vfio/vfio"), vfio("/dev/vfio/7")),
        )
    }
    assert list(written.given("intel.com/U630")) == ["8"]


def test_usb_devices_of_two_parts(imported, tree):
    for name, product, number in (("1-1", "0001", 4), ("1-2", "0001", 5), ("1-3", "0002", 6)):
        here = f"/sys/devices/pci0000:00/usb1/{name}"
        tree.write(f"""
            {here}/subsystem -> /sys/bus/usb
            {here}/idVendor = 46f4
            {here}/idProduct = {product}
            {here}/busnum = 1
            {here}/devnum = {number}
            {here}/dev = 189:{number}
            {here}/uevent = DEVNAME=bus/usb/001/00{number}
            /sys/bus/usb/devices/{name} -> {here}
            c /dev/bus/usb/001/00{number} 189:{number}
        """)
    usb = "      usb:\n      - resourceName: kubevirt.io/storage\n        selectors: "
    one, two, three = (f'{{vendor: "46f4", product: "{product}"}}' for product in ("1", "2", "3"))
    written = imported(f"{PERMITTED}{usb}[{one}, {two}]\n")
    assert [(one["what"], one["line"]) for one in written.not_kept] == [("the ids", 7)]
    assert list(written.given("kubevirt.io/storage").values()) == [
        Allocation(
            env={"USB_RESOURCE_KUBEVIRT_IO_STORAGE": "1:4,1:6"},
            device_nodes=(vfio("/dev/bus/usb/001/004"), vfio("/dev/bus/usb/001/006")),
        )
    ]
    assert tree.at("/dev/bus/usb/001/006").stat().st_uid == 107
    assert list(imported(f"{PERMITTED}{usb}[{one}]\n").given("kubevirt.io/storage")) == ["1-1", "1-2"]
    assert len(imported(f"{PERMITTED}{usb}[{one}, {one}]\n").given("kubevirt.io/storage")) == 1
    mixed = imported(f"{PERMITTED}{usb}[{one}, {one}, {three}]\n")
    assert (mixed.resources, [one["what"] for one in mixed.not_kept]) == ({}, ["the selectors"])


HYPER_CONVERGED = """\
apiVersion: hco.kubevirt.io/v1beta1
kind: HyperConverged
spec:
  permittedHostDevices:
    pciHostDevices:
    - {pciDeviceSelector: "8086:6F54", resourceName: intel.com/qat}
    - {pciDeviceSelector: "8086:6F55", resourceName: intel.com/off, disabled: true}
    - {pciDeviceSelector: "8086", resourceName: intel.com/wrong}
    usbHostDevices:
    - {resourceName: kubevirt.io/key, selectors: [{vendor: "1050", product: "0407"}]}
"""


def test_hyper_converged(imported):
    """An entry that is wrong costs no other one, and one that is disabled isn't served."""
    written = imported(HYPER_CONVERGED)
    assert list(written.resources) == ["intel.com/qat", "kubevirt.io/key"]
    assert [(one["line"], one["what"]) for one in written.not_kept] == [(8, "the entry of line 8"), (10, "the ids")]


def test_an_external_plugin_of_many_models(imported):
    """KubeVirt compares nothing with the selector then."""
    entry = '{pciVendorSelector: "8086:*", resourceName: a.b/gpu, externalResourceProvider: true}'
    written = imported(f"{PERMITTED}      pciHostDevices: [{entry}]\n")
    assert not written.resources
    (lost,) = written.not_kept
    assert (lost["what"], lost["resource"]) == ("the selector 8086:*", "a.b/gpu")
    assert "import that one's configuration" in lost["why"]


@pytest.mark.parametrize(
    "text",
    [
        """
kind: Kustomization
patches:
- target: {kind: HyperConverged}
  patch: |
    - op: add
      path: /spec/permittedHostDevices
      value: {mediatedDevices: [{mdevNameSelector: "GRID T4-1Q", resourceName: a.b/gpu}]}
""",
        """
kind: Application
spec:
  source:
    helm:
      values: |
        kubevirt:
          configuration:
            permittedHostDevices:
              pciHostDevices: [{pciVendorSelector: "8086:107c", resourceName: a.b/gpu}]
""",
    ],
)
def test_what_wraps_it(imported, text):
    assert list(imported(text).resources) == ["a.b/gpu"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "kind: KubeVirt\nspec: {}\n",
            "theirs: found nothing of it, expected an object of the kind KubeVirt or HyperConverged with ",
        ),
        (
            PERMITTED + "      pciHostDevices: [{pciVendorSelector: T4, resourceName: a.b/c}]\n",
            "theirs:6: spec.configuration.permittedHostDevices.pciHostDevices[0].pciVendorSelector: found 'T4', ",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(importing, text, told):
    assert any(line.startswith(told) for line in importing.refused(PLUGIN, text))


def test_machines_only_ask(importing):
    devices = "{hostDevices: [{deviceName: intel.com/qat, name: qat}]}"
    kind = "VirtualMachineInstance"
    text = f"kind: {kind}\nmetadata: {{name: vm}}\nspec: {{domain: {{devices: {devices}}}}}\n"
    (refused,) = importing.refused(PLUGIN, text)
    assert f"the {kind} of line 1 only asks for devices: give " in refused
