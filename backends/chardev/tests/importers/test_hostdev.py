import pytest

PLUGIN = "k8s-hostdev-plugin"

DAEMON_SET = """\
kind: DaemonSet
spec:
  template:
    spec:
      nodeSelector: {kubernetes.io/hostname: w1}
      containers:
      - name: hostdev
        args: ["--devs", "/dev/mem:r, /dev/sda:rwm,/dev/snd/controlC0:rw"]
"""


def test_a_resource_for_each_device(imported, tree):
    tree.write("c /dev/mem 1:1\nb /dev/sda 8:0\nc /dev/snd/controlC0 116:0")
    written = imported(DAEMON_SET)
    expected = {"dev_mem": ("mem", "r"), "dev_sda": ("sda", "rwm"), "dev_snd_controlC0": ("snd/controlC0", "rw")}
    assert {name: written.nodes(name) for name in written.resources} == {
        f"hostdev.k8s.io/{name}": {path: [(f"/dev/{path}", f"/dev/{path}", permissions)]}
        for name, (path, permissions) in expected.items()
    }
    assert {one.nodes for one in written.resources.values()} == {("w1",)}
    assert {one["what"] for one in written.not_kept} == {"the ids"}


@pytest.mark.parametrize("text", ["hostdev --devs=/dev/fuse:rwm", "- --devs\n- /dev/fuse:rwm\n"])
def test_every_form_in_which_people_have_it(imported, text):
    assert imported(text).plain("hostdev.k8s.io/dev_fuse") == {"paths": ("/dev/fuse",), "permissions": "rwm"}


def test_what_the_plugin_refuses(imported, importing):
    written = imported("hostdev --devs /dev/fuse:rwm,/dev/mem,/dev/kvm:rr,/dev/net/:r,tun:r\n")
    assert list(written.resources) == ["hostdev.k8s.io/dev_fuse"]
    assert [one["what"] for one in written.not_kept if one["what"] != "the ids"] == [
        "/dev/mem",
        "/dev/kvm:rr",
        "/dev/net/:r",
        "tun:r",
    ]
    assert "found nothing of it" in importing.refused(PLUGIN, "hostdev --device x\n")[0]
