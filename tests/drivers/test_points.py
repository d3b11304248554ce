"""What is installed, as plain values that lead where importlib.metadata's own lead."""

from importlib.metadata import EntryPoint

import pytest

from dpgateway.drivers.points import GROUP, Point, look

MODULE = "class Here:\n    there = 'found'\nhere = Here()\n"


def test_points_have_their_distribution(install):
    install(MODULE, module="p1_module", drivers={"p1": "p1_module:here.there"}, distribution="p1-driver")
    (point,) = (one for one in look().points if one.name == "p1")
    assert point == Point("p1", "p1_module:here.there", "p1-driver", "1.2")
    assert "p1" in look().names


@pytest.mark.parametrize(
    "value", ["p2_module", "p2_module:here", "p2_module:here.there", "p2_module : here.there", "p2_module:here [more]"]
)
def test_a_point_loads_like_the_standard_library(install, value):
    install(MODULE, module="p2_module")
    theirs = EntryPoint("p2", value, GROUP)
    assert Point("p2", value).load() is theirs.load()
    assert Point("p2", value).module == theirs.module


@pytest.mark.parametrize(("value", "error"), [("p3_nowhere", ImportError), ("os:no.such", AttributeError)])
def test_a_point_that_leads_nowhere(value, error):
    with pytest.raises(error):
        Point("p3", value).load()


@pytest.mark.parametrize("metadata", ["", "Version: 1\n", None])
def test_a_distribution_without_a_name(install, tmp_path, metadata):
    install(MODULE, module="p4_module", drivers={"p4": "p4_module:here"}, distribution="p4-driver")
    (file,) = tmp_path.glob("p4*.dist-info/METADATA")
    file.write_text(metadata) if metadata is not None else file.unlink()
    (point,) = (one for one in look().points if one.name == "p4")
    assert point.load().there == "found"
