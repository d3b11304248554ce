import json

import pytest

pytestmark = pytest.mark.usefixtures("fake_driver")


def entry(name, mode, more=""):
    return f"- {{name: example.com/{name}, driver: fake, options: {{mode: {mode}}}{more}}}\n"


def test_each_device_with_its_health(line):
    config = line.config("resources:\n" + entry("a", "list", ", shares: 3"))
    result = line("devices", "--config", config, "--node-name", "n1")
    assert result.exit_code == 0
    rows = [text.split() for text in result.stdout.splitlines() if text.startswith(("RESOURCE", "example.com"))]
    assert rows == [
        ["RESOURCE", "ID", "HEALTH", "REASON", "NUMA", "SHARES", "ATTRIBUTES"],
        ["example.com/a", "n1-0", "Healthy", "-", "0,1", "3", "serial=A1", "good=true"],
        ["example.com/a", "bad\\x1b[2J", "Unhealthy", "no", "power", "-", "3", "-"],
    ]


def test_everything_known_in_json(line):
    config = line.config("resources:\n" + entry("a", "list", ", shares: 2"))
    result = line("devices", "--config", config, "--node-name", "n1", "--output", "json")
    assert result.exit_code == 0
    (resource,) = json.loads(result.stdout)
    assert result.stderr == "closed example.com/a\n"  # what the driver itself prints
    assert resource == {
        "resource": "example.com/a",
        "driver": "fake",
        "failure": None,
        "devices": [
            {
                "id": "n1-0",
                "health": "Healthy",
                "reason": None,
                "numa_nodes": [0, 1],
                "attributes": {"serial": "A1", "good": True, "path": "/x" * 30},
                "hardware": ["pci 0000:3b:00.0"],
                "joint": False,
                "offered": ["n1-0", "n1-0::1"],
            },
            {
                "id": "bad\x1b[2J",
                "health": "Unhealthy",
                "reason": "no power",
                "numa_nodes": [],
                "attributes": {},
                "hardware": None,
                "joint": False,
                "offered": ["bad\x1b[2J", "bad\x1b[2J::1"],
            },
        ],
    }


def test_failing_or_hanging_driver(line):
    config = line.config(
        "resources:\n"
        + entry("good", "list")
        + entry("slow", "hang", ", timeouts: {list: 50ms}")
        + entry("bug", "bug")
        + entry("exits", "leave")
        + entry("refused", "refuse")
        + "- {name: example.com/broken, driver: broken}\n"
    )
    result = line("devices", "--config", config, "--output", "json")
    assert result.exit_code == 1
    failures = {one["resource"].removeprefix("example.com/"): one["failure"] for one in json.loads(result.stdout)}
    assert failures == {
        "good": None,
        "slow": "the driver didn't answer within 50ms",
        "bug": "the driver failed: devices() raised ZeroDivisionError: oops",
        "exits": "the driver failed: devices() raised SystemExit: 3",
        "refused": "the driver failed: there is no such board",
        "broken": "it can't be loaded: ModuleNotFoundError: No module named 'no_such_module_anywhere'",
    }
    table = line("devices", "--config", config)
    assert "example.com/slow: the driver didn't answer within 50ms (driver fake)\n" in table.stdout


def test_many_hanging_drivers(line):
    hanging = "".join(entry(f"slow-{number}", "hang", ", timeouts: {list: 2s}") for number in range(20))
    config = line.config("resources:\n" + hanging + entry("good", "list"))
    result = line("devices", "--config", config, "--output", "json")
    failures = [one["failure"] for one in json.loads(result.stdout)]
    assert failures == ["the driver didn't answer within 2s"] * 20 + [None]
    assert result.stderr == "closed example.com/good\n"


def test_list_too_long_for_a_kubelet(line):
    names = "{device_id_prefix: " + "x" * 230 + ", count: 30}"
    config = line.config(f"resources:\n- {{name: example.com/a, driver: simulated, options: {names}, shares: 1000}}\n")
    result = line("devices", "--config", config, "--output", "json")
    assert result.exit_code == 1
    (resource,) = json.loads(result.stdout)
    assert len(resource["devices"]) == 30
    assert resource["failure"].startswith("the list of 30000 ids takes ")


def test_all_problems_at_once(line):
    config = line.config("resources:\n" + entry("a", "1") + entry("b", "list", ", shares: no"))
    result = line("devices", "--config", config)
    assert (result.exit_code, result.stdout) == (2, "")
    places = [text.split(": found")[0] for text in result.stderr.splitlines() if text.startswith(str(config))]
    assert places == [f"{config}:2: resources[0].options.mode", f"{config}:3: resources[1].shares"]


def test_what_was_looked_at_is_explained(line):
    config = line.config("resources:\n" + entry("a", "list"))
    result = line("devices", "--config", config, "--node-name", "n1", "--explain")
    assert result.exit_code == 0
    rows = [text.split() for text in result.stdout.splitlines() if text.startswith(("RESOURCE", "example.com"))]
    assert rows == [
        ["RESOURCE", "OBJECT", "DEVICE", "FAILED", "TEST", "FOUND", "EXPECTED"],
        ["example.com/a", "slot", "0", "n1-0", "-", "-", "-"],
        ["example.com/a", "slot", "1", "bad\\x1b[2J", "health", "no", "power", "Healthy"],
        ["example.com/a", "slot", "2", "-", "vendor", "'0x10de'", "0x8086"],
    ]
    result = line("devices", "--config", config, "--explain", "slot 2", "--output", "json")
    (resource,) = json.loads(result.stdout)
    assert resource["candidates"] == [
        {
            "name": "slot 2",
            "path": "/sys/slots/2",
            "device": None,
            "test": "vendor",
            "found": "'0x10de'",
            "expected": "0x8086",
        }
    ]


def test_what_cannot_be_explained_is_said(line):
    config = line.config(
        "resources:\n"
        + entry("a", "list")
        + entry("b", "unexplained")
        + "- {name: example.com/c, driver: simulated}\n"
        + entry("d", "bug")
    )
    result = line("devices", "--config", config, "--explain", "slot 9")
    assert result.exit_code == 1
    assert [text for text in result.stdout.splitlines() if text.startswith("example.com")] == [
        "example.com/a: driver fake knows no slot 9",
        "example.com/b: the driver failed: explain() returned 3, expected candidates (driver fake)",
        "example.com/c: driver simulated can't explain its search",
        "example.com/d: the driver failed: devices() raised ZeroDivisionError: oops (driver fake)",
    ]
    result = line("devices", "--config", line.config("resources:\n" + entry("a", "list")), "--explain", "slot 9")
    assert result.exit_code == 1, "no driver knows it"


@pytest.mark.parametrize("output", ["table", "json"])
def test_log_after_the_result_in_a_pipe(line, output):
    config = line.config("resources:\n" + entry("a", "chat"))
    result = line("devices", "--config", config, "--output", output)
    assert result.stdout in result.output
    assert "looking around" not in result.stdout
    assert " INFO    looking around resource=example.com/a" in result.output.splitlines()[-1]
    result = line("devices", "--config", config, "--log-format", "json")
    assert json.loads(result.output.splitlines()[-1])["message"] == "looking around"


def test_failed_command_prints_its_log(line, monkeypatch):
    config = line.config("resources:\n" + entry("a", "chat"))
    result = line("devices", "--config", config, "--output", "json", "--log-level", "warning")
    assert "looking around" not in result.output
    result = line("devices", "--config", line.config("resources:\n" + entry("a", "chat") + entry("b", "bug")))
    assert result.exit_code == 1
    assert " INFO    looking around resource=example.com/a" in result.output.splitlines()[-1]


def test_no_resource_for_this_node(line):
    result = line("devices", "--config", line.config("resources: []"), "--node-name", "n1")
    assert (result.exit_code, result.stdout) == (0, "resources is empty, so nothing is served\n")


def test_names_in_slices_of_resources_by_dra(line):
    config = line.config("dra: {driver: dra.example.com}\nresources:\n" + entry("a", "list", ", front: dra"))
    (found,) = json.loads(line("devices", "--config", config, "--node-name", "n1", "--output", "json").stdout)
    assert found["slices"]["names"]["n1-0"] == "n1-0"
    assert found["slices"]["names"]["bad\x1b[2J"].startswith("bad-2j-")
    assert (found["slices"]["left_out"], found["slices"]["unsaid"]) == ([], [])
