"""The forms in which people have generic-device-plugin's configuration, and the domain of its names."""

import pytest

PLUGIN = "generic-device-plugin"


VIDEO = "{name: video, groups: [{paths: [{path: /dev/video0}]}]}"


@pytest.mark.parametrize(
    "text",
    [
        """x --device='{"name": "video", "groups": [{"paths": [{"path": "/dev/video0"}]}]}' --domain=example.com""",
        "- --domain=example.com\n- --device\n- 'name: video\n\n  groups: [{paths: [{path: /dev/video0}]}]'",
        """plugin \\
          --domain example.com \\
          --device '{name: video, groups: [{paths: [{path: /dev/video0}]}]}'""",
        "domain: example.com\ndevices:\n- name: video\n  groups:\n  - paths: [{path: /dev/video0}]\n",
        """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  data:
    config.yaml: |
      domain: ignored.example
      device:
      - {name: video, groups: [{paths: [{path: /dev/video0}]}]}
---
apiVersion: apps/v1
kind: DaemonSet
spec: {template: {spec: {containers: [{args: ["--domain=example.com", "--log-level", "debug"]}]}}}
""",
    ],
)
def test_every_form_in_which_people_have_it(imported, text):
    written = imported(text)
    assert written.plain("example.com/video") == {"paths": ("/dev/video0",), "permissions": "mrw"}


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        # a HelmRelease of a chart that takes a container, with flags
        (
            f"""
kind: HelmRelease
spec:
  values:
    controllers:
      plugin:
        containers:
          app:
            image: {{repository: ghcr.io/squat/generic-device-plugin, tag: "0.1.0@sha256:00"}}
            args: [--device, "{VIDEO}"]
""",
            "squat.ai",
        ),
        # the same, with a file
        (
            f"""
kind: HelmRelease
spec:
  values:
    image: {{repository: squat/generic-device-plugin, tag: v0.2.1}}
    configMaps: {{config: {{data: {{config.yaml: "devices: [{VIDEO}]"}}}}}}
""",
            "devic.es",
        ),
        # a chart's values, whose own key has the file
        (f"config:\n  enabled: true\n  data: |\n    domain: example.org\n    devices: [{VIDEO}]\n", "example.org"),
        # patches of a Kustomization, as a strategic merge and as operations
        (
            f"""
kind: Kustomization
patches:
- patch: |-
    kind: DaemonSet
    spec: {{template: {{spec: {{containers: [{{name: a, args: [--domain, a.example, --device, "{VIDEO}"]}}]}}}}}}
""",
            "a.example",
        ),
        (
            f"""
kind: Kustomization
patches:
- patch: |
    - op: replace
      path: /spec/template/spec/containers/0/args
      value: [--domain=b.example, "--device={VIDEO}"]
""",
            "b.example",
        ),
        (
            f"""
kind: Kustomization
images: [{{name: squat/generic-device-plugin, newTag: 0.1.0}}]
patches:
- patch: |
    - {{op: add, path: /spec/template/spec/containers/0/args/-, value: --device}}
    - {{op: add, path: /spec/template/spec/containers/0/args/-, value: '{VIDEO}'}}
""",
            "squat.ai",
        ),
        # MicroShift has it built in
        (f"apiServer: {{}}\ngenericDevicePlugin:\n  status: Enabled\n  devices: [{VIDEO}]\n", "device.microshift.io"),
    ],
)
def test_what_wraps_it(imported, text, domain):
    written = imported(text)
    assert written.plain(f"{domain}/video") == {"paths": ("/dev/video0",), "permissions": "mrw"}
    assert (written.code, written.not_kept) == (0, [])


def test_default_domain_of_an_unknown_version(imported):
    text = imported(f"devices: [{VIDEO}]").text
    assert "  # The default domain depends on the plugin's version" in text
    assert "depends on" not in imported(f"domain: devic.es\ndevices: [{VIDEO}]").text


def test_what_microshift_does_not_serve(imported):
    text = f"genericDevicePlugin: {{status: Disabled, devices: [{VIDEO}]}}"
    assert "  # MicroShift doesn't serve it, because its status there is Disabled." in imported(text).text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- --domain\n- 1\n", "theirs: found nothing of it, expected --device flags, or a file with `devices`"),
        ("x --device 'a\n\n", "theirs:3: found a quote without its end, expected a command line"),
        (
            "devices:\n- name: ch\n  groups:\n  - usb: [{vendor: 1209, product: '7'}]\n",
            'theirs:4: devices[0].groups[0].usb[0].vendor: found 1209, expected a string; put it in quotes: "1209"',
        ),
        (
            "plugin --device '{name: ch, groups: [{usb: [{vendor: xyz, product: 1}]}]}'",
            "theirs:1: groups[0].usb[0].vendor: found 'xyz', expected at most four hexadecimal digits",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(importing, text, told):
    assert any(line.startswith(told) for line in importing.refused(PLUGIN, text))


def test_one_bad_entry(imported):
    """It costs no other one, nor do texts that only look like the plugin's."""
    written = imported(f"""\
kind: List
items:
- kind: ConfigMap
  metadata: {{annotations: {{last-applied: '{{"devices": [{VIDEO}]}}'}}}}
  data:
    broken.yaml: "devices: [ {{groups: }} ]: ]"
    config.yaml: |
      domain: a.b
      devices:
      - {VIDEO}
      - {{name: V, groups: [{{paths: [{{path: /dev/v}}]}}]}}
      - {{name: empty, groups: [{{}}]}}
""")
    assert set(written.resources) == {"a.b/video"}
    assert [one["line"] for one in written.not_kept] == [6, 11, 12]


def test_variables_of_flux(imported):
    """They cost the resources that have them, and are told once."""
    devices = f"--device, '{VIDEO}', --device, '{VIDEO.replace('video', 'cam')}'"
    written = imported(f"args:\n  [--domain, 'kubelet.${{DOMAIN}}', {devices}]\n")
    assert (written.resources, written.code) == ({}, 1)
    assert [(one["line"], one["what"]) for one in written.not_kept] == [(2, "the variable ${DOMAIN}")]
    assert written.not_kept[0]["why"].endswith("it is in kubelet.${DOMAIN}/video, kubelet.${DOMAIN}/cam")
    one = "{name: tty, groups: [{paths: [{path: '/dev/${TTY}'}]}]}"
    assert set(imported(f"domain: example.com\ndevices: [{VIDEO}, {one}]\n").resources) == {"example.com/video"}


def test_templates(imported):
    """Of Helm, Ansible or Jinja: what has no variable is kept."""
    tty = "{name: tty, groups: [{paths: [{path: '/dev/{{ tty }}'}]}]}"
    count = "\n    - name: few\n      groups:\n      - count: {{ few }}\n        paths: [{path: /dev/b}]\n"
    written = imported(f"data:\n  config.yaml: |\n    domain: a.b\n    devices:\n    - {VIDEO}\n    - {tty}{count}")
    assert set(written.resources) == {"a.b/video"}
    assert [(one["line"], one["what"]) for one in written.not_kept] == [
        (6, "the variable {{ tty }}"),
        (9, "the variable {{ few }}"),
    ]


def test_variables_where_nothing_else_is(importing):
    (told,) = importing.refused(PLUGIN, "devices: [{name: tty, groups: [{count: '${N}', paths: [{path: /dev/a}]}]}]\n")
    assert told.startswith('theirs:1: devices[0].groups[0].count: found "${N}", expected an integer; ')
    assert "`envsubst`" in told


def test_one_name_twice_for_the_same_nodes(imported):
    one, other = VIDEO, VIDEO.replace("video0", "video1")
    (lost,) = imported(f"domain: a.example\ndevices: [{one}, {other}]\n").not_kept
    assert lost["why"].startswith("line 2 has a resource of this name, too, and a configuration has each name once: ")


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        (
            "spec: {containers: [{image: squat/generic-device-plugin, env: [{name: DOMAIN, value: env.example}]}]}\n",
            "env",
        ),
        ("values: {env: {DOMAIN: env.example}}\n", "env"),
        ("values: {env: {DOMAIN: {value: env.example}}}\n", "env"),
        ("deviceDomain: env.example\n", "env"),
        ("args: [--domain, flag.example]\nvalues: {env: {DOMAIN: env.example}}\n", "flag"),
        ("spec: {containers: [{image: home-assistant, env: [{name: DOMAIN, value: env.example}]}]}\n", "file"),
    ],
)
def test_domain_of_the_environment(imported, text, domain):
    """A flag outweighs the variable DOMAIN, and that outweighs the file, because viper reads them in this order."""
    written = imported(f"{text}---\ndomain: file.example\ndevices: [{VIDEO}]\n")
    assert list(written.resources) == [f"{domain}.example/video"]


@pytest.mark.parametrize(
    ("chart", "domain"),
    [
        ("{chart: generic-device-plugin, sourceRef: {kind: HelmRepository, name: gabe565}}", "squat.ai"),
        ("{repoURL: https://charts.gabe565.com, chart: generic-device-plugin}", "squat.ai"),
        ("{chart: gabe565/generic-device-plugin}", "squat.ai"),
        ("[{chart: gabe565/paperless-ngx}, {chart: app-template}]", "devic.es"),
    ],
)
def test_domain_of_a_chart(imported, chart, domain):
    """gabe565's has a domain of its own, whatever the plugin's version."""
    text = (
        f"source: {chart}\nimage: {{repository: generic-device-plugin, tag: 0.2.0}}\nconfig: {{devices: [{VIDEO}]}}\n"
    )
    assert list(imported(text).resources) == [f"{domain}/video"]


def test_terraform(imported):
    device = "<<-EOT\n      name: video\n      groups: [{paths: [{path: /dev/video0}]}]\n    EOT\n"
    for domain in ('"--domain", "a.example",', '"--domain=a.example",'):
        written = imported(
            f'resource "kubernetes_daemonset" "a" {{\n  args = [\n    {domain} "--device", {device}  ]\n}}\n'
        )
        assert list(written.resources) == ["a.example/video"]


def test_modes_of_volumes(imported):
    """Numbers that YAML 1.1 and 1.2 read in two ways are none of the plugin's."""
    volume = "volumes: [{configMap: {name: a, defaultMode: 0775}}]"
    device = "{name: tun, groups: [{paths: [{path: /dev/net/tun}]}]}"
    written = imported(f'containers: [{{args: [--device, "{device}"]}}]\n{volume}\n')
    assert (set(written.resources), written.not_kept) == ({"devic.es/tun"}, [])
