"""What `dpgateway new-driver` writes: it passes its tests as it is, and serves a pod."""

import pytest

from tests.docs.conftest import Place

pytestmark = pytest.mark.xdist_group("place")

CONFIG = "resources: [{name: example.com/thing, driver: my-thing, options: {paths: [/dev/null, /dev/zero]}}]"
COMMANDS = [
    "dpgateway new-driver my-thing --directory .",
    "pip install -q -e '.[test]' && pytest -q",
    f"""echo '{CONFIG}' > config.yaml
dpgateway check --config config.yaml
dpgateway run --config config.yaml --device-plugins-dir plugins 2> gateway.log &
dpgateway simulate --device-plugins-dir plugins --script /dev/stdin <<'END'
wait example.com/thing=2
pod p example.com/thing=2
END""",
]


def test_passes_its_tests_and_serves(place: Place):
    directory = place.directory / "thing"
    directory.mkdir()
    scripts = place.directory / "scripts"
    scripts.mkdir()
    results = place.run([f"cd {directory}", *COMMANDS], "scripts")
    assert [result.status for result in results] == [0] * 4, results
    assert "16 passed" in results[2].output
    assert "nodes=/dev/null:/dev/null:rw,/dev/zero:/dev/zero:rw" in results[3].output
