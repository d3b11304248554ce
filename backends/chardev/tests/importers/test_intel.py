"""The examples say what Intel's plugins give; the same is made of the operator's objects."""

from pathlib import Path

import pytest

from dpgateway.drivers import discovery
from tests.support.configurations import complete, load

PLUGIN = "intel-device-plugins"

EXAMPLES = Path(__file__).parents[4] / "examples"
OBJECTS = """\
kind: GpuDevicePlugin
spec: {sharedDevNum: 2, enableMonitoring: true, monitoringMode: split}
---
kind: QatDevicePlugin
spec: {dpdkDriver: vfio-pci, kernelVfDrivers: [4xxxvf, 420xxvf, 6xxxvf], maxNumDevices: 8, initImage: a}
---
kind: SgxDevicePlugin
spec: {enclaveLimit: 110, provisionLimit: 110}
---
kind: DsaDevicePlugin
spec: {sharedDevNum: 10}
---
kind: IaaDevicePlugin
spec: {sharedDevNum: 10, provisioningConfig: a}
---
kind: DlbDevicePlugin
spec: {}
---
kind: NpuDevicePlugin
spec: {sharedDevNum: 10}
---
kind: FpgaDevicePlugin
spec: {mode: af}
"""


def example(name):
    document = load(EXAMPLES / f"intel-{name}.yaml")
    drivers = {name: one.load() for name, one in discovery.named(document.drivers).items()}
    return complete(document, drivers).resources


@pytest.mark.parametrize("name", ["gpu", "gpu-monitoring", "qat", "sgx", "dsa", "dlb", "npu"])
def test_as_the_examples(imported, name):
    made = imported(OBJECTS).resources
    for one in example(name):
        if one.name != "qat.intel.com/generic":  # whose example has no test of the services' file
            assert made[one.name].options.match == one.options.match
            assert made[one.name].options.nodes == one.options.nodes
            assert made[one.name].options.env == one.options.env
            assert made[one.name].shares == one.shares


def test_functions_of_dsa(imported):
    made = imported("kind: DsaDevicePlugin\nspec: {driver: vfio-pci}").resources
    assert {name: one.options for name, one in made.items()} == {one.name: one.options for one in example("dsa-vfio")}


def test_what_is_not_kept(imported):
    assert {(one["what"], one["resource"]) for one in imported(OBJECTS).not_kept} == {
        ("the ids", "gpu.intel.com/i915"),
        ("initImage", "qat.intel.com/cy"),
        ("other services", "qat.intel.com/cy"),
        ("maxNumDevices", "qat.intel.com/cy"),
        ("provisioningConfig", "iaa.intel.com/wq-user-shared"),
        ("the ids", "npu.intel.com/accel"),
        ("mode", ""),
    }


@pytest.mark.parametrize(
    "text",
    [
        "kind: List\nitems: [{kind: GpuDevicePlugin, spec: {sharedDevNum: 3, image: intel/intel-gpu-plugin:0.36.0}}]",
        "kind: DaemonSet\nspec: {containers: [{image: 'intel/intel-gpu-plugin:0.30.0', args: [-shared-dev-num=3]}]}",
        "a: {image: {repository: ghcr.io/intel/intel-gpu-plugin}, args: [-shared-dev-num, 3]}",
        "kind: HelmRelease\nspec: {chart: {spec: {chart: intel-device-plugins-gpu}}, values: {sharedDevNum: 3}}",
        "kind: Application\nspec: {source: {chart: intel-device-plugins-gpu, helm: {values: 'sharedDevNum: 3'}}}",
        "kind: HelmRelease\nmetadata: {name: intel-device-plugin-gpu}\nspec: {values: {sharedDevNum: 3}}",
        "kind: HelmRelease\nspec: {chartRef: {name: a}, values: {name: intel-gpu-plugin, sharedDevNum: 3}}",
        "kind: DaemonSet\nspec: {containers: [{name: intel-gpu-plugin, args: [-shared-dev-num=3]}]}",
        "kind: HelmChart\nspec: {chart: intel-device-plugins-gpu, set: {sharedDevNum: '3'}}",
        (
            "kind: Application\nspec: {source: {chart: intel-device-plugins-gpu, helm: {parameters: "
            "[{name: sharedDevNum, value: '3'}]}}}"
        ),
        (
            "kind: ApplicationSet\nspec: {template: {spec: {source: {chart: intel-device-plugins-gpu, "
            "helm: {valuesObject: {sharedDevNum: 3}}}}}}"
        ),
        "kind: Kustomization\nhelmCharts: [{name: intel-device-plugins-gpu, valuesInline: {sharedDevNum: 3}}]",
        "releases: [{name: a, chart: intel/intel-device-plugins-gpu, values: [{sharedDevNum: 3}]}]",
        "kind: HelmRelease\nspec: {chart: {spec: {chart: intel-gpu-plugin}}, values: {args: [-shared-dev-num, '3']}}",
        "releases: [{name: a, chart: k8s-at-home/intel-gpu-plugin, values: [{args: [-shared-dev-num=3]}]}]",
        (
            "kind: HelmRelease\nspec: {chart: {spec: {chart: intel-gpu-plugin}}, values: {args: [-shared-dev-num, 3], "
            "image: {repository: intel/intel-gpu-plugin}}}"
        ),
        "intel-device-plugins-gpu: {sharedDevNum: 3}",
        "name: intel-gpu-plugin\nsharedDevNum: 3",
        "name: intel-device-plugins-gpu\nsharedDevNum: 3",
        (
            "kind: HelmRelease\nspec: {chart: {spec: {chart: intel-device-plugins-gpu}}, valuesFrom: [{name: a}]}"
            "\n---\nkind: ConfigMap\ndata:\n  values.yaml: |\n    name: intel-gpu-plugin\n    sharedDevNum: 3\n"
        ),
    ],
)
def test_what_wraps_it(imported, text):
    written = imported(text)
    counts = {name: one.shares.count for name, one in written.resources.items()}
    assert counts.pop("gpu.intel.com/monitoring", 1) == 1
    old = ("chart: intel-gpu-plugin" in text or "k8s-at-home" in text) and "repository" not in text
    assert counts == {"gpu.intel.com/i915": 3} | ({} if old else {"gpu.intel.com/xe": 3})


RELEASE = "kind: HelmRelease\nspec: {{chart: {{spec: {{chart: intel-device-plugins-gpu, version: {}}}}}}}\n"
REPOSITORY = "kind: OCIRepository\nmetadata: {name: intel-device-plugins-gpu}\nspec: {ref: {tag: 0.34.1}}\n---\n"


@pytest.mark.parametrize(
    ("text", "monitoring"),
    [
        (RELEASE.format("0.35.0"), ["i915_monitoring", "xe_monitoring"]),
        (RELEASE.format("0.36.0"), ["monitoring"]),
        (RELEASE.format("0.34"), ["i915_monitoring", "xe_monitoring"]),
        (RELEASE.format("'*'"), ["monitoring"]),
        (
            f"{REPOSITORY}kind: HelmRelease\nspec: {{chartRef: {{name: intel-device-plugins-gpu}}, values: {{}}}}",
            ["i915_monitoring", "xe_monitoring"],
        ),
        (
            "kind: GpuDevicePlugin\nspec: {image: intel/intel-gpu-plugin:0.29.0, enableMonitoring: true}",
            ["i915_monitoring"],
        ),
        (
            "a: {image: {repository: intel/intel-gpu-plugin, tag: v0.32.1}, args: [-enable-monitoring]}",
            ["i915_monitoring", "xe_monitoring"],
        ),
        (
            "kind: GpuDevicePlugin\nspec: {image: a:0.29.0, enableMonitoring: true, monitoringMode: split}",
            ["i915_monitoring", "xe_monitoring"],
        ),
        ("name: intel-gpu-plugin\nsharedDevNum: 2\nimage: {tag: 0.36.1}", ["monitoring"]),
        (
            "releases: [{chart: a/intel-gpu-plugin, version: 4.4.2, values: [{args: [-enable-monitoring]}]}]",
            ["i915_monitoring"],
        ),
        ("helm install gpu intel/intel-device-plugins-gpu --version 0.34.0", ["i915_monitoring", "xe_monitoring"]),
    ],
)
def test_names_of_a_version(imported, text, monitoring):
    """xe is known since 0.30, monitoring is one resource since 0.36, and a user without a version has to know."""
    written = imported(text)
    names = [name.removeprefix("gpu.intel.com/") for name in written.resources]
    assert [name for name in names if "monitoring" in name] == monitoring
    assert ("xe" in names) == (monitoring != ["i915_monitoring"])
    assert ("since 0.36" in " ".join(written.text.split())) == ("*" in text)


CONTAINER = """\
image: intel/intel-qat-plugin:0.18.0
env:
- {name: DRIVER, value: igb_uio}
- {name: VFS, valueFrom: {configMapKeyRef: {name: of-qat, key: KERNEL_VF_DRIVERS}}}
args: [-dpdk-driver, $(DRIVER), -kernel-vf-drivers, $(VFS)]
"""
CONFIG_MAP = "---\nkind: ConfigMap\nmetadata: {name: of-qat}\ndata: {KERNEL_VF_DRIVERS: 'c6xxvf,4xxxvf'}\n"


def test_flags_with_variables(imported):
    """Of the container's environment, which may be from a ConfigMap; without that the defaults are told of."""
    written = imported(CONTAINER + CONFIG_MAP)
    match, *_ = written.resources["qat.intel.com/cy"].options.match
    assert match.driver.glob == ("igb_uio",)
    assert "0x37c9" in match.attr["device"].glob
    assert "otherValues" not in [one["what"] for one in written.not_kept]
    without = imported(CONTAINER)
    assert [one["line"] for one in without.not_kept if one["what"] == "otherValues"] == [5]
    assert without.resources["qat.intel.com/cy"].options.match[0].driver.glob == ("igb_uio",)


def test_values_that_charts_have_themselves(imported):
    release = "---\nkind: HelmRelease\nspec: {{chart: {{spec: {{chart: intel-device-plugins-{}}}}}}}\n"
    written = imported("".join(map(release.format, ("gpu", "sgx", "iaa"))))
    counts = {name: one.shares.count for name, one in written.resources.items()}
    assert counts.items() >= {
        ("gpu.intel.com/i915", 1),
        ("gpu.intel.com/monitoring", 1),
        ("sgx.intel.com/enclave", 110),
        ("iaa.intel.com/wq-user-shared", 10),
    }
    none = imported(release.format("gpu").replace("}}\n", "}, values: {enableMonitoring: false}}\n"))
    assert set(none.resources) == {"gpu.intel.com/i915", "gpu.intel.com/xe"}


@pytest.mark.parametrize(
    "text",
    [
        "kind: HelmRelease\nspec: {chart: {spec: {chart: intel-device-plugins-gpu}},\n valuesFrom: [{name: a}]}",
        "kind: Application\nspec: {source: {chart: intel-device-plugins-gpu, helm: {\n valueFiles: [a.yaml]}}}",
        "kind: Kustomization\nhelmCharts: [{name: intel-device-plugins-gpu,\n valuesFile: a.yaml}]",
    ],
)
def test_values_that_are_elsewhere(imported, text):
    written = imported(text)
    assert {one.shares.count for one in written.resources.values()} == {1}
    assert [one["line"] for one in written.not_kept if one["what"] == "otherValues"] == [3]


@pytest.mark.parametrize(
    "text",
    [
        "kind: HelmRelease\nspec: {dependsOn: [{name: intel-device-plugins-gpu}], values: {args: [--a]}}",
        "kind: Kustomization\nspec: {healthChecks: [{kind: HelmRelease, name: intel-device-plugins-gpu}]}",
        "kind: Kustomization\nspec: {healthChecks: [{kind: GpuDevicePlugin, name: a}]}",
    ],
)
def test_users_of_it_are_none(importing, text):
    assert "found nothing of it" in importing.refused(PLUGIN, text)[0]


def test_one_bad_object(imported):
    written = imported("kind: NpuDevicePlugin\nspec: {sharedDevNum: many}\n---\nkind: DlbDevicePlugin\nspec: {}\n")
    assert set(written.resources) == {"dlb.intel.com/pf", "dlb.intel.com/vf"}
    assert [(one["line"], one["what"]) for one in written.not_kept] == [(2, "the entry of line 2")]


def test_settings_of_a_gpu(imported):
    more = "allowIDs: '0x56C0,0x56C1', bypathMode: none, preferredAllocationPolicy: balanced"
    text = f"kind: GpuDevicePlugin\nspec: {{{more}, nodeSelector: {{kubernetes.io/hostname: w1, zone: a}}}}"
    written = imported(text)
    (one,) = (one for name, one in written.resources.items() if name == "gpu.intel.com/i915")
    assert one.options.match[0].attr["device/device"].glob == ("0x56c0", "0x56c1")
    assert len(one.options.nodes) == 2
    assert (one.preference, one.nodes) == ("spread", ("w1",))
    assert "# NodeSelector has zone: say `nodes` here" in written.text


def test_commands_of_helm(imported):
    """The chart's name is in the command only."""
    command = "helm install gpu intel/intel-device-plugins-gpu --set sharedDevNum=7"
    written = imported(f"#!/bin/sh\nhelm repo add intel https://example.org\n{command}\n")
    assert {one.shares.count for name, one in written.resources.items() if "monitoring" not in name} == {7}
    assert set(imported(f"# Install\n\n`{command.partition(' --')[0]}`\n\n    {command}\n").resources)
    more = imported(f"{command} -f more.yaml")
    assert "otherValues" in [one["what"] for one in more.not_kept]
