"""What `make dist` leaves: each part is installed into something empty."""

import re
import subprocess
import sys
import tarfile
import venv

import pytest

from tests.cluster.manifests import template
from tools.dist import package_chart, sums
from tools.packages import OWN, ROOT, build

pytestmark = pytest.mark.xdist_group("the files of a release")  # they are made once


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """All but the image, which test_image looks at."""
    folder = tmp_path_factory.mktemp("dist")
    build(OWN, folder)
    package_chart(folder / "dpgateway-chart.tgz")
    (folder / "SHA256SUMS").write_text("".join(sums(folder)))
    return folder


def test_there_are_a_wheel_and_a_source_archive_of_each_package_and_their_sums(dist):
    found = {re.sub(r"-\d.*?(\.tar\.gz|-py3-none-any\.whl)$", r"\1", path.name) for path in dist.iterdir()}
    names = ("dpgateway", "dpgateway_chardev", "dpgateway_fpga", "dpgateway_simulated")
    archives = {name + end for name in names for end in (".tar.gz", "-py3-none-any.whl")}
    assert found == archives | {"dpgateway-chart.tgz", "SHA256SUMS"}
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=dist, check=True)


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_an_empty_environment_gets_a_gateway_that_works(dist, tmp_path, kind):
    venv.create(tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    archives = sorted(map(str, dist.glob(kind)))
    options = ("-q", "--disable-pip-version-check", "--no-compile", "-c", str(ROOT / "constraints.txt"))
    pip = (sys.executable, "-m", "pip", "--python", python, "install")
    subprocess.run([*pip, *options, *archives], check=True, cwd=tmp_path)
    gateway = python.with_name("dpgateway")
    said = subprocess.run([gateway, "drivers"], check=True, cwd=tmp_path, capture_output=True, text=True).stdout
    assert [name in said for name in ("chardev", "fpga", "simulated")] == [True] * 3


def test_the_packed_chart_is_the_chart(dist):
    with tarfile.open(dist / "dpgateway-chart.tgz") as tar:
        assert all(one.isfile() for one in tar.getmembers())
    assert template(chart=dist / "dpgateway-chart.tgz") == template()
