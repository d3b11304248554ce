import pytest

PLUGIN = "akri"

VIDEO = """\
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: video}
spec:
  discoveryHandler:
    name: udev
    discoveryDetails: |+
      udevRules:
      - 'SUBSYSTEM=="video4linux", KERNEL=="video[0-9]*", ENV{ID_V4L_CAPABILITIES}=="*:capture:*"'
      permissions: rw
  brokerProperties: {FORMAT: MJPG}
  capacity: 5
"""


@pytest.fixture(autouse=True)
def stick(tree):
    """A camera with two nodes, in a USB stick."""
    here = "/sys/devices/pci0000:00/usb1/1-1"
    tree.write(f"""
        {here}/subsystem -> /sys/bus/usb
        {here}/idVendor = 046d
        {here}/product = Camera
        {here}/dev = 189:1
        {here}/uevent = DEVNAME=bus/usb/001/002
        /sys/bus/usb/devices/1-1 -> {here}
        c /dev/bus/usb/001/002 189:1
    """)
    for number, capabilities in enumerate((":capture:", ":")):
        video = f"{here}/1-1:1.0/video4linux/video{number}"
        tree.write(f"""
            {video}/subsystem -> /sys/class/video4linux
            {video}/dev = 81:{number}
            {video}/uevent = DEVNAME=video{number}\\nID_V4L_CAPABILITIES={capabilities}
            /sys/class/video4linux/video{number} -> {video}
            c /dev/video{number} 81:{number}
        """)


def test_rules_of_udev(imported):
    written = imported(VIDEO)
    (given,) = written.given("akri.sh/video").values()
    assert [(one.host_path, one.permissions) for one in given.device_nodes] == [("/dev/video0", "rw")]
    assert given.env == {"UDEV_DEVNODE": "/dev/video0"}
    one = written.resources["akri.sh/video"]
    assert (one.shares.count, one.env) == (5, {"FORMAT": "MJPG"})
    assert [one["what"] for one in written.not_kept] == [
        "the ids",
        "akri.sh/video-<hash>",
        "UDEV_DEVPATH, and variables with suffixes",
    ]


def nodes(written, name):
    return [sorted(host for host, _, _ in one) for one in written.nodes(name).values()]


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ('SUBSYSTEM=="usb", ATTR{idVendor}=="046d"', ["/dev/bus/usb/001/002"]),
        ('KERNEL=="video*", ATTRS{product}=="Cam.*"', ["/dev/video0", "/dev/video1"]),
        ('KERNEL=="video*" , ENV{ID_V4L_CAPABILITIES}==":"', ["/dev/video1"]),
        ('KERNEL=="video*", KERNEL!="video0"', ["/dev/video1"]),
        ('ENV{DEVNAME}=="/dev/video1"', ["/dev/video1"]),
        ('ENV{DEVNAME}=="/dev/video1", ENV{ID_V4L_CAPABILITIES}=="*:capture:*"', ["/dev/video0", "/dev/video1"]),
        ('KERNEL=="video0", ENV{DEVNAME}=="/dev/video1", ENV{ID_V4L_CAPABILITIES}=="*:capture:*"', ["/dev/video0"]),
        ('SUBSYSTEM!="usb", ATTRS{idVendor}=="046d"', None),
        ('KERNEL=="video*", ATTRS{idVendor}!="046d"', None),
        ('TAG=="uaccess"', None),
        ('KERNEL=="video0", MODE="0666"', None),
        ("nonsense", None),
    ],
)
def test_comparisons(imported, rule, found):
    written = imported(VIDEO.replace(VIDEO.splitlines()[8], f"      - '{rule}'"))
    if found is None:
        assert written.resources == {}
        assert written.not_kept[0]["what"] == f"the rule {rule}"
    else:
        assert sorted(path for one in nodes(written, "akri.sh/video") for path in one) == found


def test_objects_without_a_node(imported):
    """There the node of what they are in is given."""
    text = VIDEO.replace('SUBSYSTEM=="video4linux", KERNEL=="video[0-9]*"', 'SUBSYSTEM=="input"')
    assert "objects without a node" in [one["what"] for one in imported(text).not_kept]


def test_a_device_and_all_below_it(imported):
    text = VIDEO.replace("      permissions: rw", "      groupRecursive: true")
    rule = 'ATTRS{idVendor}=="046d"'
    written = imported(text.replace(VIDEO.splitlines()[8], f"      - '{rule}'"))
    assert nodes(written, "akri.sh/video") == [["/dev/bus/usb/001/002", "/dev/video0", "/dev/video1"]]
    assert "groupRecursive" in [one["what"] for one in imported(text).not_kept]


@pytest.mark.parametrize(
    "text",
    [
        """
udev:
  configuration:
    enabled: true
    name: video
    discoveryDetails: {udevRules: ['KERNEL=="video0"'], groupRecursive: false}
    brokerPod: {image: {repository: example.org/broker}}
""",
        """
apiVersion: akri.sh/v0alpha1
kind: Configuration
metadata: {name: video}
spec: {protocol: {udev: {udevRules: ['KERNEL=="video0"']}}, brokerPodSpec: {containers: [{name: a}]}}
""",
        """
udev:
  enabled: true
  name: video
  udevRules: ['KERNEL=="video0"']
  brokerPod: {image: {repository: example.org/broker}}
""",
    ],
)
def test_other_forms(imported, text):
    written = imported(text)
    assert nodes(written, "akri.sh/video") == [["/dev/video0"]]
    assert any("the gateway starts no pods" in one["why"] for one in written.not_kept)


def test_values_of_the_first_charts(imported):
    """Before March 2021 they had neither a configuration nor details."""
    written = imported("udev:\n  udevRules: ['KERNEL==\"video0\"']\n  properties: {FORMAT: MJPG}\n  capacity: 3\n")
    assert nodes(written, "akri.sh/akri-udev") == [["/dev/video0"]]
    one = written.resources["akri.sh/akri-udev"]
    assert (one.shares.count, one.env) == (3, {"FORMAT": "MJPG"})


def test_properties_that_the_chart_quotes(imported):
    details = "discoveryDetails: {udevRules: ['KERNEL==\"video0\"']}"
    text = f"udev:\n  configuration:\n    {details}\n    brokerProperties: {{A: 1000, B: true, C: 1.50}}\n"
    assert imported(text).resources["akri.sh/akri-udev"].env == {"A": "1000", "B": "true", "C": "1.50"}


def test_commands_of_helm(imported):
    """As a text for people has them, one after another."""
    command = r"""
Try this:

    helm install akri akri-helm-charts/akri \
        --set udev.configuration.enabled=true \
        --set udev.configuration.name=video \
        --set udev.configuration.discoveryDetails.udevRules[0]='KERNEL=="video[0-9]*"\, ATTRS{idVendor}=="046d"' \
        --set udev.configuration.capacity=2

With an earlier version you'd say

    helm install akri akri-helm-charts/akri --set udev.enabled=true --set udev.udevRules[0]='KERNEL=="video0"'
"""
    written = imported(command)
    assert nodes(written, "akri.sh/video") == [["/dev/video0"], ["/dev/video1"]]
    assert nodes(written, "akri.sh/akri-udev") == [["/dev/video0"]]
    assert written.resources["akri.sh/video"].shares.count == 2
    assert [one["line"] for one in written.not_kept if one["what"] == "the ids"] == [6, 12]


def test_services_of_brokers(imported):
    more = "  instanceServiceSpec: {ports: [{port: 80}]}\n  configurationServiceSpec: {}\n"
    told = {one["what"]: one["line"] for one in imported(f"{VIDEO.rstrip()}\n{more}").not_kept}
    assert told["instanceServiceSpec"] == f"{VIDEO.rstrip()}\n".count("\n") + 1
    assert "configurationServiceSpec" not in told


def test_the_charts_own_name(imported, importing):
    text = "udev:\n  configuration:\n    discoveryDetails: {udevRules: %s}\n"
    assert list(imported(text % "['KERNEL==\"video0\"']").resources) == ["akri.sh/akri-udev"]
    assert "found nothing of it" in importing.refused(PLUGIN, text % "null")[0]


def test_devices_of_the_network(imported):
    onvif = VIDEO.replace("udev\n", "onvif\n").replace("udevRules", "ipAddresses").replace("name: video", "name: net")
    written = imported(f"{onvif}---\n{VIDEO}")
    assert set(written.resources) == {"akri.sh/video"}
    assert written.not_kept[0]["what"] == "the discovery handler onvif"
