import pytest

from dpgateway.errors import ConfigurationError
from dpgateway.node.versions import Layout
from dpgateway.preflight import detect_version


@pytest.mark.parametrize(
    ("found", "present"),
    [
        ([], "1.8 or later"),
        ([detect_version.said("v1.31.4")], "1.31"),
        ([detect_version.registered("v1alpha1")], "1.8"),
        ([detect_version.registered("v1beta1")], "1.10 or later"),
        ([detect_version.registered("v1beta1"), detect_version.wrote(frozenset({Layout.PER_CONTAINER}))], "1.10"),
        ([detect_version.lists_pods("v1"), detect_version.wrote(frozenset({Layout.BY_NODE}))], "1.20 or later"),
        ([detect_version.wrote(frozenset({Layout.CHECKED, Layout.BY_NODE}))], "1.11 or later"),
        ([detect_version.lists_pods("v1alpha1"), detect_version.wrote(frozenset({Layout.CHECKED}))], "1.13 to 1.19"),
    ],
)
def test_all_clues_together(found, present):
    assert str(detect_version.present(found)) == present


def test_checkpoint_of_an_earlier_kubelet():
    old = detect_version.wrote(frozenset({Layout.PER_DEVICE}))
    assert str(detect_version.present([detect_version.lists_pods("v1"), old])) == "1.20 or later"


def test_the_operator_may_err():
    with pytest.raises(ConfigurationError, match="expected a kubelet's version"):
        detect_version.said("latest")
