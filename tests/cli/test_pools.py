"""What check says of resources that offer the same hardware."""

import pytest

pytestmark = pytest.mark.usefixtures("fake_driver")

FAKE = "driver: fake, options: {mode: list}"
SIMULATED = "driver: simulated, options: {count: %d, device_id_prefix: %s}"
A, B = "example.com/a", "example.com/b"
OFFERS = (
    f"{A} offers pci 0000:3b:00.0 too, so that two containers can get it; one pool keeps them apart, and then no "
    "container can have both"
)
EXPECTED = [
    (FAKE, FAKE, "", OFFERS),
    (SIMULATED % (1, "x"), SIMULATED % (1, "x"), "", None),
    (
        SIMULATED % (1, "x"),
        SIMULATED % (1, "x"),
        "pool: p, ",
        f"it and {A} can't be in use at the same time: each device of the one shares hardware with each of the other",
    ),
    (SIMULATED % (2, "x"), SIMULATED % (2, "x"), "pool: p, ", None),
    (
        SIMULATED % (1, "x"),
        SIMULATED % (1, "y"),
        "pool: p, ",
        f"it has no hardware in common with {A}, so pool p does nothing for it",
    ),
    (FAKE, "driver: fake, options: {mode: bug}", "", "its devices aren't known: the driver failed: devices() raised"),
]


@pytest.mark.parametrize(("first", "second", "pool", "expected"), EXPECTED)
def test_resources_that_share_hardware(line, first, second, pool, expected):
    config = line.config(f"resources:\n- {{name: {A}, {pool}{first}}}\n- {{name: {B}, {pool}{second}}}")
    result = line("check", "--config", config, "--node-name", "n1", "--devices")
    assert result.exit_code == 0
    warned = [text for text in result.stdout.splitlines() if text.startswith(f"warning: {config}")]
    warned = [text for text in warned if "would be Unhealthy" not in text]
    if expected is None:
        assert warned == []
    else:
        assert len(warned) == 1
        assert warned[0].startswith(f"warning: {config}:3: {B}: {expected}")


CHARDEV = "driver: chardev, options: {paths: [%s]}"


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        (["/dev/null", "/dev/zero", "/dev/null, /dev/zero"], []),
        (["/dev/full", "/dev/null", "/dev/null, /dev/zero"], ["example.com/r0"]),
        (["/dev/full", "/dev/null", "/dev/zero"], ["example.com/r1", "example.com/r2"]),
    ],
)
def test_a_pool_of_several_needs_no_hardware_common_to_all(line, paths, told):
    entries = [f"- {{name: example.com/r{n}, pool: p, {CHARDEV % path}}}" for n, path in enumerate(paths)]
    found = line("check", "--config", line.config("resources:\n" + "\n".join(entries)), "--devices").stdout
    warned = [text.split(": ")[2] for text in found.splitlines() if "it has no hardware in common with" in text]
    assert warned == told, found


def test_drivers_are_asked_with_the_option_only(line):
    config = line.config(f"resources: [{{name: {A}, {FAKE}}}, {{name: {B}, {FAKE}}}]")
    assert "pci 0000" not in line("check", "--config", config, "--node-name", "n1").stdout


def test_same_nodes_in_one_pool(line):
    chardev = "driver: chardev, options: {paths: [/dev/x]}"
    config = "resources: [{name: %s, pool: p, %s}, {name: %s, pool: %s, %s}]"
    together = line("check", "--config", line.config(config % (A, chardev, B, "p", chardev)))
    assert "offers it too" not in together.stdout
    apart = line("check", "--config", line.config(config % (A, chardev, B, "q", chardev)))
    assert "in one pool they exclude each other, and no container can have both" in apart.stdout
