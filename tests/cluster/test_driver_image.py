"""A driver of somebody's own in an image of their own, as docs/how-to/install-cluster.md adds one."""

import subprocess
import sys

from tests.cluster.installed import pod

NAME = "localhost/dpgateway:dongle"


def test_a_new_drivers_package_is_added_to_the_image_and_its_profile_serves_it(cluster, chart, tmp_path):
    package, archive = tmp_path / "dpgateway-dongle", tmp_path / "dongle.tar"
    new = [sys.executable, "-m", "dpgateway", "new-driver", "dongle", f"--directory={package}"]
    subprocess.run(new, check=True)
    make = [sys.executable, "-m", "tools.image", f"--driver={package}", f"--name={NAME}", str(archive)]
    subprocess.run(make, check=True)
    cluster.nodes["old"].load(archive)
    cluster.label({"example.com/kind": "dongles"}, "old")
    dongles = {
        "nodeSelector": {"example.com/kind": "dongles"},
        "image": {"tag": "dongle"},
        "config": {"resources": [{"name": "example.com/dongle", "driver": "dongle"}]},
    }
    chart.install({"profiles": {"dongles": dongles}, "checkConfig": False})  # other nodes haven't got the image
    chart.until_offered("old", "example.com/dongle", 1)
    cluster.create(pod("user", "old", {"example.com/dongle": 1}))
    cluster.wait_for_pod("user")
