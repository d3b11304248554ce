import json

import pytest

pytestmark = pytest.mark.usefixtures("fake_driver")

GOOD = "{name: example.com/a, driver: fake, options: {mode: list}}"


def test_a_valid_configuration(line):
    config = line.config(f"resources:\n- {GOOD}")
    result = line("check", "--config", config, "--node-name", "n1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"example.com/a  fake    {config}:2" in result.stdout
    assert result.stdout.endswith(f"{config} is valid on node n1\n")


def test_everything_that_is_wrong_at_once(line):
    config = line.config(f"""resources:
- {GOOD}
- {{name: example.com/b, driver: fake, options: {{mode: 1}}, refresh: 5}}
- {{name: example.com/c, driver: fak}}
- {{name: example.com/d, driver: broken}}
""")
    result = line("check", "--config", config)
    assert result.exit_code == 2
    lines = result.stdout.replace(str(config), "").splitlines()
    installed = next(text for text in lines if text.startswith(":4"))
    assert installed.startswith(':4: resources[2].driver: found "fak", expected an installed driver: ')
    assert installed.endswith("did you mean fake?")
    assert [text for text in lines if text != installed] == [
        ':3: resources[1].options.mode: found 1, expected a string; put it in quotes: "1"',
        (
            ":3: resources[1].refresh: found 5, expected a duration: a number and a unit (ms, s, m or h), "
            "like 30s or 1m30s; write 5s"
        ),
        (
            ":5: example.com/d: driver broken: it can't be loaded: ModuleNotFoundError: No module named "
            "'no_such_module_anywhere'"
        ),
        "4 problems in ",
    ]


def test_each_part_of_a_problem_in_json(line):
    config = line.config(f"resources:\n- {GOOD}\n- {{name: example.com/b, driver: fake, options: {{mod: list}}}}")
    result = line("check", "--config", config, "--output", "json", "--node-name", "n1")
    assert result.exit_code == 2
    verdict = json.loads(result.stdout)
    warnings = verdict.pop("warnings")
    assert any("no_such_module_anywhere" in warning["hint"] for warning in warnings)
    assert verdict == {
        "config": str(config),
        "node_name": "n1",
        "device_plugins_dir": "/var/lib/kubelet/device-plugins",
        "valid": False,
        "problems": [
            {
                "file": str(config),
                "line": 3,
                "column": 39,
                "key": "resources[1].options.mode",
                "found": "nothing",
                "expected": "a value, because this key has no default",
                "hint": "",
            },
            {
                "file": str(config),
                "line": 3,
                "column": 49,
                "key": "resources[1].options.mod",
                "found": "an unknown key",
                "expected": "one of mode, wait, inner",
                "hint": "did you mean mode?",
            },
        ],
        "resources": [{"name": "example.com/a", "driver": "fake", "where": f"{config}:2"}],
    }


class TestPrecedence:
    def settings(self, line, *flags, **environment):
        result = line("check", "--output", "json", *flags, **environment)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def test_flags_win_over_environment_over_file(self, line):
        config = line.config("resources: []\nkubelet: {device_plugins_dir: /file}")
        directory = "device_plugins_dir"
        environment = {"DPGATEWAY_CONFIG": str(config)}
        assert self.settings(line, **environment)[directory] == "/file"
        environment["DPGATEWAY_DEVICE_PLUGINS_DIR"] = "/environment"
        assert self.settings(line, **environment)[directory] == "/environment"
        assert self.settings(line, "--device-plugins-dir", "/flag", **environment)[directory] == "/flag"

    def test_the_nodes_name(self, line):
        environment = {"DPGATEWAY_CONFIG": str(line.config("resources: []"))}
        assert self.settings(line, **environment)["node_name"]
        environment["NODE_NAME"] = "kubernetes"
        assert self.settings(line, **environment)["node_name"] == "kubernetes"
        environment["DPGATEWAY_NODE_NAME"] = "ours"
        assert self.settings(line, **environment)["node_name"] == "ours"
        assert self.settings(line, "--node-name", "flag", **environment)["node_name"] == "flag"

    def test_resources_of_other_nodes(self, line):
        config = line.config("resources: [{name: example.com/a, driver: nowhere, nodes: [gpu-*]}]")
        assert self.settings(line, "--config", config, "--node-name", "x")["resources"] == []
        assert line("check", "--config", config, "--node-name", "gpu-1").exit_code == 2


class TestAllNodes:
    def check(self, line, resources, *flags):
        return line("check", "--all-nodes", *flags, "--config", line.config(f"resources: [{', '.join(resources)}]"))

    def resource(self, name, options="{mode: list}", nodes="['*']"):
        return f"{{name: example.com/{name}, driver: fake, options: {options}, nodes: {nodes}}}"

    def test_options_of_a_node_that_has_no_gateway_yet(self, line):
        wrong = [self.resource("a", "{mode: 1}", "[gpu-1]"), self.resource("b", "{mod: list}", "['fpga-[12]']")]
        result = self.check(line, [self.resource("c"), *wrong])
        assert result.exit_code == 2
        assert "resources[1].options.mode: found 1" in result.stdout
        assert "resources[2].options.mod: found an unknown key" in result.stdout

    def test_what_two_nodes_have_alike_is_no_conflict(self, line):
        def claimed(*nodes):
            return [self.resource(f"r{i}", "{mode: claim}", some) for i, some in enumerate(nodes)]

        apart = self.check(line, claimed("[a]", "['b-*']"))
        assert (apart.exit_code, apart.stdout.splitlines()[-1][-21:]) == (0, "is valid on all nodes")
        together = self.check(line, claimed("[b-1]", "['b-*']"))
        assert together.exit_code == 2
        assert "which the resource at" in together.stdout

    def test_no_warning_about_the_hardware_of_this_node(self, line):
        resources = [self.resource("a", "{mode: doubt}")]
        assert "oops" not in self.check(line, resources).stdout
        assert "oops" in line("check", "--config", line.config(f"resources: [{resources[0]}]")).stdout

    def test_json_has_no_node(self, line):
        told = json.loads(self.check(line, [self.resource("a", nodes="[x]")], "--output", "json").stdout)
        assert (told["node_name"], [one["name"] for one in told["resources"]]) == (None, ["example.com/a"])

    def test_not_with_what_needs_this_node(self, line):
        assert "--devices and --against-running are about this node" in self.check(line, [], "--devices").output
