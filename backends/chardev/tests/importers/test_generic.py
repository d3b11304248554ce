"""What generic-device-plugin gives is in its deviceplugin/path.go and usb.go; here it is written down by hand."""

from dpgateway.config import Shares

PLUGIN = "generic-device-plugin"


DAEMON_SET = """\
apiVersion: apps/v1
kind: DaemonSet
spec:
  template:
    spec:
      containers:
      - image: plugin
        args:
        - --domain
        - example.com
        - --device
        - |
          name: serial
          groups:
            - paths:
                - path: /dev/ttyUSB*
            - paths:
                - path: /dev/ttyACM[^1]
        - --device
        - |
          name: fuse
          groups:
            - count: 10
              paths:
                - path: /dev/fuse
                  permissions: rw
                  mountPath: /dev/inside/
"""


def test_a_daemon_set(imported, tree):
    tree.write("""
        c /dev/ttyUSB0 240:0
        c /dev/ttyUSB1 240:1
        c /dev/ttyACM0 240:2
        c /dev/ttyACM1 240:3
        c /dev/fuse 10:229
    """)
    written = imported(DAEMON_SET)
    assert written.nodes("example.com/serial") == {
        name: [(f"/dev/{name}", f"/dev/{name}", "mrw")] for name in ("ttyACM0", "ttyUSB0", "ttyUSB1")
    }
    assert written.nodes("example.com/fuse") == {"fuse": [("/dev/fuse", "/dev/inside/fuse", "rw")]}
    ids = "{sha1:{share}/dev/{id}}"
    assert written.resources["example.com/serial"].shares == Shares(1, ids=ids)
    assert written.resources["example.com/fuse"].shares == Shares(10, ids=ids)
    assert (written.code, written.not_kept) == (0, [])


def test_comments_say_where_it_comes_from(imported):
    text = imported(DAEMON_SET).text
    assert text.startswith("# What generic-device-plugin served, made from theirs by dpgateway import.\n")
    assert "  # From theirs:21.\n  - name: example.com/fuse\n    driver: chardev\n" in text


def test_a_flag_outweighs_the_file(imported):
    config_map = "apiVersion: v1\nkind: ConfigMap\ndata: {c: 'devices: [{name: cc, groups: []}]'}\n---\n"
    written = imported(config_map + DAEMON_SET)
    assert set(written.resources) == {"example.com/serial", "example.com/fuse"}
    assert [(one["what"], one["why"]) for one in written.not_kept] == [("cc", "a --device flag outweighs the file")]


def test_a_name_that_no_kubelet_takes(imported):
    """It costs no other resource."""
    written = imported(DAEMON_SET.replace("name: fuse", f"name: {'f' * 64}"))
    assert set(written.resources) == {"example.com/serial"}
    (lost,) = written.not_kept
    assert (lost["line"], lost["resource"]) == (21, f"example.com/{'f' * 64}")
    assert lost["why"].endswith("64 characters, 1 to 63 are allowed") or "63" in lost["why"]


def test_what_is_not_kept(imported):
    written = imported("""\
devices:
- name: several
  groups:
  - paths: [{path: /dev/a, permissions: r, mountPath: /dev/x}]
    count: 3
  - paths: [{path: /dev/b}]
    count: 2
  - paths: [{path: /dev/c}, {path: /dev/d}]
  - paths: [{path: /dev/snd/}]
  - paths: [{path: /opt/file, type: Mount}]
  - paths: [{path: /sys/kernel/node}]
- name: mixed
  groups:
  - paths: [{path: /dev/a}]
  - usb: [{vendor: "1a86", product: "7523"}]
- name: only-mounts
  groups:
  - paths: [{path: /opt/file, type: Mount}]
- name: sticks
  groups:
  - usb: [{vendor: "1a86", product: "7523", serial: A1}]
  - usb: [{vendor: "1a86", product: "7523"}]
- name: disks
  groups:
  - paths: [{path: /dev/disk/by-id}]
""")
    assert written.lost == [
        (8, "devices[0].groups[2]", "devic.es/several", "the group of /dev/c"),
        (9, "devices[0].groups[3]", "devic.es/several", "the directory /dev/snd/"),
        (10, "devices[0].groups[4]", "devic.es/several", "the mount /opt/file"),
        (11, "devices[0].groups[5]", "devic.es/several", "/sys/kernel/node"),
        (6, "devices[0].groups[1]", "devic.es/several", "the group of /dev/b"),
        (14, "devices[1].groups[0]", "devic.es/mixed", "paths"),
        (12, "devices[1]", "devic.es/mixed", "the ids"),
        (18, "devices[2].groups[0]", "devic.es/only-mounts", "the mount /opt/file"),
        (20, "devices[3].groups", "devic.es/sticks", "groups of USB devices"),
        (25, "devices[4].groups[0]", "devic.es/disks", "the directory /dev/disk/by-id"),
    ]
    assert written.plain("devic.es/several") == {"paths": ("/dev/a",), "permissions": "r", "container_path": "/dev/x"}
    assert written.resources["devic.es/several"].shares.count == 3  # what the first group has
    assert set(written.resources) == {"devic.es/several", "devic.es/mixed"}


NOTHING = """\
genericDevicePlugin:
  status: Enabled
  devices:
  - name: serial
    groups:
    - usb: [{vendor: 1a86}, {device: 55d4}]
    - paths: [{path: /dev/ttyACM0}]
      usbs: [{vendor: "", product: ""}]
    - count: 2
  - name: stick
    groups: [{usb: [{vendor: 1a86}]}]
"""


def test_groups_without_a_device_cost_no_other(imported):
    """A number that isn't written is 0 there, which no USB device has."""
    written = imported(NOTHING)
    assert written.plain("device.microshift.io/serial") == {"paths": ("/dev/ttyACM0",), "permissions": "mrw"}
    assert list(written.resources) == ["device.microshift.io/serial"]
    assert [(line, resource, what) for line, _, resource, what in written.lost] == [
        (6, "", "device"),
        (6, "device.microshift.io/serial", "groups[0]"),
        (9, "device.microshift.io/serial", "groups[2]"),
        (11, "device.microshift.io/stick", "groups[0]"),
    ]


GROUPS = "domain: a.b\ndevices: [{name: it, groups: [%s]}]"


def test_counts_above_the_most_shares(imported):
    written = imported(GROUPS % "{count: 5000, paths: [{path: /dev/fuse}]}")
    assert written.resources["a.b/it"].shares.count == 1000
    assert [(one["what"], one["why"]) for one in written.not_kept] == [("a count of 5000", "shares are at most 1000")]


def test_counts_of_groups_that_are_not_kept(imported):
    written = imported(GROUPS % "{count: 10, paths: [{path: /dev/a}]}, {count: 2, paths: [{path: /run/b}]}")
    assert written.resources["a.b/it"].shares.count == 10
    assert [one["what"] for one in written.not_kept] == ["/run/b"]
    written = imported(GROUPS % "{count: 10, paths: [{path: /dev/a}]}, {count: 2, paths: [{path: /dev/b}]}")
    assert (written.resources["a.b/it"].shares.count, written.lost[0][3]) == (2, "different counts")


def daemon_set(name, path, selector):
    device = f"{{name: tty, groups: [{{paths: [{{path: {path}}}]}}]}}"
    pods = f"{{{selector}, containers: [{{args: [--domain=a.example, --device, '{device}']}}]}}"
    return f"---\nkind: DaemonSet\nmetadata: {{name: {name}}}\nspec: {{template: {{spec: {pods}}}}}\n"


def test_daemon_sets_for_different_nodes(imported, importing):
    """A configuration has a name once, so these are two of them, in profiles of the chart."""
    left = daemon_set("left", "/dev/a", "nodeSelector: {side: left, kubernetes.io/os: linux}")
    right = daemon_set("right", "/dev/b", "nodeSelector: {side: right}") + daemon_set("all", "/dev/c", "x: y").replace(
        "name: tty", "name: all"
    )
    written = imported(left + right)
    assert written.plain("a.example/tty")["paths"] == ("/dev/a",)
    (lost,) = written.not_kept
    assert (lost["line"], lost["what"]) == (8, "the resource")
    nodes = "for nodeSelector side=left,kubernetes.io/os=linux, and this is for nodeSelector side=right: "
    assert lost["why"].startswith(f"line 4 has a resource of this name, too, {nodes}import it with --node-label=side=")
    assert "docs/how-to/install-cluster.md" in lost["why"]
    for side, path in (("left", "/dev/a"), ("right", "/dev/b")):
        one = imported(left + right, f"--node-label=side={side}", "--node-label=other=x")
        assert (one.plain("a.example/tty")["paths"], set(one.resources)) == (
            (path,),
            {"a.example/tty", "a.example/all"},
        )
        assert (one.code, one.not_kept) == (0, [])
        assert "odeSelector" not in one.text
    (told,) = importing.refused(PLUGIN, left, "--node-label=side=right")
    assert told.endswith("expected one of side=left, for which this file has devices")
    (told,) = importing.refused(PLUGIN, left, "--node-label=side")
    assert told.endswith("--node-label: found 'side', expected KEY=VALUE")


def test_what_a_node_of_other_labels_loses(imported):
    """It isn't told of what other nodes' DaemonSets lose."""
    left = daemon_set("left", "/dev/a", "nodeSelector: {side: left}").replace("groups: [{", "groups: [{count: 2000, ")
    right = daemon_set("right", "/dev/b", "nodeSelector: {side: right}")
    assert [one["what"] for one in imported(left + right, "--node-label=side=left").not_kept] == ["a count of 2000"]
    assert imported(left + right, "--node-label=side=right").not_kept == []


def test_daemon_sets_with_affinity(imported):
    left, right = "nodeSelector: {side: left}", "affinity: {nodeAffinity: {}}"
    (lost,) = imported(daemon_set("left", "/dev/a", left) + daemon_set("right", "/dev/b", right)).not_kept
    nodes = "for nodeSelector side=left, and this is for nodeAffinity: make a configuration of each, "
    assert lost["why"].startswith(f"line 4 has a resource of this name, too, {nodes}")


def test_daemon_sets_that_offer_the_same(imported):
    one, other = (daemon_set(name, "/dev/a", f"nodeSelector: {{side: {name}}}") for name in ("left", "right"))
    written = imported(one + other)
    assert (list(written.resources), written.not_kept) == (["a.example/tty"], [])


def test_nodes_by_name(imported):
    """Of what selects the nodes only a name is known here; the gateway's pods can have the rest."""
    host = "nodeSelector: {kubernetes.io/os: linux, kubernetes.io/hostname: %s}"
    left = daemon_set("left", "/dev/a", host % "w1")
    written = imported(left)
    assert (written.resources["a.example/tty"].nodes, written.code) == (("w1",), 0)
    assert "nodeSelector" not in written.text
    both = imported(left + daemon_set("right", "/dev/a", host % "w2"))
    assert (both.resources["a.example/tty"].nodes, both.code) == (("w1", "w2"), 0)
    everywhere = imported(left + daemon_set("right", "/dev/a", "nodeSelector: {side: right}"))
    assert (everywhere.resources["a.example/tty"].nodes, everywhere.code) == (("*",), 0)
    assert "NodeSelector has side: say `nodes` here, or let the gateway's pods have" in everywhere.text
    right = daemon_set("right", "/dev/b", host % "w2")
    other = imported(left + right)
    assert (other.resources["a.example/tty"].nodes, [one["line"] for one in other.not_kept]) == (("w1",), [8])
    assert "import it with --node-label=kubernetes.io/hostname=w2" in other.not_kept[0]["why"]
    only = imported(left + right, "--node-label=kubernetes.io/hostname=w2")
    assert (only.plain("a.example/tty")["paths"], only.resources["a.example/tty"].nodes) == (("/dev/b",), ("w2",))
