"""The table says of each release what the simulated kubelet of that release does, which real ones are held to."""

import pytest

import dpgateway_simulator
from dpgateway.errors import ConfigurationError
from dpgateway.node.versions import ALL, ANY, Layout, Span, kubelet_version, span

LAYOUTS = {
    "per device": Layout.PER_DEVICE,
    "per container": Layout.PER_CONTAINER,
    "with checksum": Layout.CHECKED,
    "by NUMA node": Layout.BY_NODE,
}
APIS = {"0.1": "v1alpha1", "v1alpha2": "v1alpha2", "v1beta1": "v1beta1"}


@pytest.mark.parametrize("one", ALL, ids=str)
def test_it_says_what_the_simulated_kubelets_do(one):
    does = dpgateway_simulator.behaviour(str(one))
    assert (one.api, one.writes) == (APIS[does.api], LAYOUTS[does.checkpoint_writes])
    assert one.reads == {LAYOUTS[layout] for layout in does.checkpoint_reads}
    assert one.prepare == does.pre_start
    assert one.topology == does.topology
    assert one.preference == does.preferred
    assert (one.cdi, one.cdi_annotation) == (does.cdi, does.cdi_annotation)
    assert one.needs_healthy == does.needs_healthy
    assert one.unlisted_crashes == does.vanished_crashes
    if one.minor not in {13, 14}:  # behind a feature gate, which the simulated ones have off
        assert one.pod_resources == next(iter(does.lists), None)


def test_all_releases_are_known():
    assert [str(one) for one in ALL] == list(dpgateway_simulator.versions())


@pytest.mark.parametrize("version", ["1.24", "v1.24", "1.24.17", "v1.24.0"])
def test_a_version_is_of_a_release(version):
    assert str(kubelet_version(version)) == "1.24"


@pytest.mark.parametrize("version", ["", "1", "1.7", "2.0", "1.24.", "1.24-rc.1", "1.2٣", "24"])
def test_what_is_no_version_that_is_known(version):
    with pytest.raises(ConfigurationError, match=r"expected a kubelet's version from 1\.8 to 1\.37$"):
        kubelet_version(version)


@pytest.mark.parametrize("version", ["1.38", "1.100", "v1.38.1"])
def test_a_newer_version_is_unknown(version):
    with pytest.raises(ConfigurationError, match=r"kubelets newer than 1\.37 are unknown to this dpgateway"):
        kubelet_version(version)


def test_spans_in_words():
    one, other, newest = kubelet_version("1.20"), kubelet_version("1.22"), kubelet_version("1.37")
    texts = [str(Span(*ends)) for ends in ((one, one), (one, other), (one, newest), (newest, newest))]
    assert texts == ["1.20", "1.20 to 1.22", "1.20 or later", "1.37"]


def test_the_releases_of_two_spans():
    checked, lists = span(lambda one: one.writes is Layout.CHECKED), span(lambda one: one.pod_resources == "v1alpha1")
    assert str(checked.within(lists)) == str(lists.within(checked)) == "1.13 to 1.19"
    assert checked.within(span(lambda one: one.minor > 19)) is None
    assert ANY.within(lists) == lists
    assert [one.minor for one in lists.versions] == list(range(13, 20))
