"""What the status says of the gateway itself."""

from importlib.metadata import version

from dpgateway.status.values import VERSION


def test_version_of_the_package():
    assert version("dpgateway") == VERSION
