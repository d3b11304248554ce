"""What sriov-network-operator makes of its policies is in its controllers; here it is written by hand."""

import pytest

PLUGIN = "sriov-network-device-plugin"

POLICY = """\
---
apiVersion: sriovnetwork.openshift.io/v1
kind: SriovNetworkNodePolicy
metadata: {name: a-policy, namespace: operator}
spec:
"""
VFIO = f"""{POLICY}
  resourceName: dpdk
  nodeSelector: {{feature.node.kubernetes.io/network-sriov.capable: "true"}}
  priority: 10
  mtu: 9000
  numVfs: 3
  deviceType: vfio-pci
  linkType: ETH
  needVhostNet: true
  nicSelector: {{vendor: "8086", deviceID: "158b", pfNames: ["enp0s0f0#0-1"]}}
"""


@pytest.fixture(autouse=True)
def cards(tree):
    """Two cards of two models, with two virtual functions each: one for vfio-pci, and one for the kernel."""
    tree.write("c /dev/vfio/vfio 10:196\nc /dev/vhost-net 10:238\nc /dev/net/tun 10:200")
    for slot, (model, name) in enumerate((("158b", "enp0s0f0"), ("1572", "enp1s0f0"))):
        card = f"/sys/devices/pci0000:17/0000:1{slot}:00.0"
        tree.write(f"{card}/net/{name}/type = 1\n{card}/sriov_numvfs = 2")
        for number, (driver, device) in enumerate((("i40e", model), ("vfio-pci", "154c"), ("iavf", "154c"))):
            here = f"/sys/devices/pci0000:17/0000:1{slot}:00.{number}"
            tree.write(f"""
                {here}/subsystem -> /sys/bus/pci
                {here}/vendor = 0x8086
                {here}/device = 0x{device}
                {here}/class = 0x020000
                {here}/driver -> /sys/bus/pci/drivers/{driver}
                {here}/iommu_group -> /sys/kernel/iommu_groups/{slot}{number}
                /sys/bus/pci/devices/0000:1{slot}:00.{number} -> {here}
                c /dev/vfio/{slot}{number} 240:{slot}{number}
            """)
            if number:
                tree.write(f"{here}/physfn -> {card}\n{card}/virtfn{number - 1} -> {here}")


def ids(written, name):
    return set(written.given(name))


def test_the_functions_of_a_policy(imported):
    """The model is the card's, and the driver the one that the operator binds."""
    written = imported(VFIO)
    assert (written.code, written.not_kept) == (0, [])
    (given,) = written.given("openshift.io/dpdk").values()
    assert given.env["PCIDEVICE_OPENSHIFT_IO_DPDK"] == "0000:10:00.1"
    nodes = ["/dev/vfio/vfio", "/dev/vfio/01", "/dev/vhost-net", "/dev/net/tun"]
    assert [one.host_path for one in given.device_nodes] == nodes
    told = " ".join(written.text.replace("#", " ").split())
    assert "its own device plugin offers them" in told
    assert "The prefix is the operator's default, openshift.io" in told


def test_interfaces_by_the_cards_address(imported):
    text = POLICY + "  {resourceName: net, numVfs: 2, nicSelector: {rootDevices: ['0000:11:00.0']}, linkType: eth}\n"
    assert ids(imported(text), "openshift.io/net") == {"0000:11:00.2"}


def test_policies_of_one_resource(imported):
    other = VFIO.replace("158b", "1572").replace("enp0s0f0#0-1", "enp1s0f0")
    written = imported(VFIO + other)
    assert ids(written, "openshift.io/dpdk") == {"0000:10:00.1", "0000:11:00.1"}
    assert written.code == 0


def test_policies_for_different_nodes(imported):
    """Two nodes by name can have one resource if nothing else differs; what differs is told."""
    rest = "  {resourceName: net, nicSelector: {vendor: '8086'}, nodeSelector: {%s}}\n"
    named = [POLICY + rest % f"kubernetes.io/hostname: {name}" for name in ("w1", "w2")]
    assert imported("".join(named)).resources["openshift.io/net"].nodes == ("w1", "w2")
    zones = [POLICY + rest % f"zone: {zone}" for zone in "ab"]
    text = "".join([*zones, zones[0].replace("8086", "15b3").replace("zone: a", "zone: c")])
    written = imported(text)
    assert [(lost[0], *lost[2:]) for lost in written.lost] == [(17, "openshift.io/net", "the resource")]
    assert "line 5 has a resource of this name, too, for nodeSelector zone=a" in written.not_kept[0]["why"]
    assert "0x15b3" in imported(text, "--node-label=zone=c").text
    assert "nodeSelector has zone" in written.text.replace("NodeS", "nodeS")


def test_policies_that_cannot_be_kept(imported, importing):
    """One that is wrong costs no other, and the one called default is none."""
    net = POLICY + "  {resourceName: b, nicSelector: {netFilter: 'openstack/NetworkID:1'}}\n"
    wrong = POLICY + "  {resourceName: c, nicSelector: {vendor: '8086'}, numVfs: many}\n"
    unused = VFIO.replace("a-policy", "default").replace("dpdk", "d")
    written = imported(VFIO + net + wrong + unused)
    assert list(written.resources) == ["openshift.io/dpdk"]
    assert [one["what"] for one in written.not_kept] == ["the entry of line 27", "the policy for openstack/NetworkID:1"]
    assert "found nothing of it" in importing.refused("sriov", unused)[0]
    assert any('spec.numVfs: found "many"' in line for line in importing.refused("sriov", wrong))


def test_a_policy_without_a_selector_of_cards(imported):
    """The operator refuses it; it would be for all functions. Its own documentation has pfName, which is no key."""
    written = imported(VFIO + POLICY + "  {resourceName: all, numVfs: 2, nicSelector: {pfName: [enp1s0f0]}}\n")
    assert list(written.resources) == ["openshift.io/dpdk"]
    (why,) = {one["why"] for one in written.not_kept}
    assert why.startswith("expected at least one of vendor, deviceID, pfNames, rootDevices and netFilter")
