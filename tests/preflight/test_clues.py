import pytest

from dpgateway.errors import ConfigurationError
from dpgateway.node.releases import Layout
from dpgateway.preflight import clues


@pytest.mark.parametrize(
    ("found", "present"),
    [
        ([], "1.8 or later"),
        ([clues.said("v1.31.4")], "1.31"),
        ([clues.registered("v1alpha1")], "1.8"),
        ([clues.registered("v1beta1")], "1.10 or later"),
        ([clues.registered("v1beta1"), clues.wrote(frozenset({Layout.PER_CONTAINER}))], "1.10"),
        ([clues.lists_pods("v1"), clues.wrote(frozenset({Layout.BY_NODE}))], "1.20 or later"),
        ([clues.wrote(frozenset({Layout.CHECKED, Layout.BY_NODE}))], "1.11 or later"),
        ([clues.lists_pods("v1alpha1"), clues.wrote(frozenset({Layout.CHECKED}))], "1.13 to 1.19"),
    ],
)
def test_all_clues_together(found, present):
    assert str(clues.present(found)) == present


def test_a_checkpoint_may_be_of_the_kubelet_before():
    old = clues.wrote(frozenset({Layout.PER_DEVICE}))
    assert str(clues.present([clues.lists_pods("v1"), old])) == "1.20 or later"


def test_the_operator_may_err():
    with pytest.raises(ConfigurationError, match="expected a kubelet's version"):
        clues.said("latest")
