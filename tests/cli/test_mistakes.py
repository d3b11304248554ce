"""The likeliest mistakes of somebody new: each is told in one message, with what to do, and without a traceback."""

import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dpgateway.config import Place, Problem
from tests.support.gateway import COMMAND
from tests.support.waiting import BUSY

AS_NOBODY = """
import contextlib, os, sys
import dpgateway.cli.agent, dpgateway.cli.run
with contextlib.suppress(SystemExit):
    dpgateway.cli.main(["check", "--config=config.yaml"])
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
dpgateway.cli.main(sys.argv[1:], prog_name="dpgateway")
"""  # after all is imported, because others may not be allowed to read where Python is
FUSE = "{name: example.com/a, driver: chardev, options: {paths: [/dev/fuse]}}"


def resource(more):
    """A good one, but for what is added."""
    return f"resources:\n- {FUSE[:-1]}, {more}}}\n"


def chardev(options):
    return f"resources:\n- {{name: example.com/a, driver: chardev, options: {{{options}}}}}\n"


def boards(name, *ids):
    listed = ", ".join(f"{{id: {board}}}" for board in ids)
    options = f"{{bitstream: {{path: /dev/null, id: b}}, boards: [{listed}]}}"
    return f"- {{name: {name}, driver: fpga, options: {options}}}\n"


def named(name):
    return f"resources:\n- {FUSE.replace('example.com/a', name)}\n"


@dataclass(frozen=True)
class Mistake:
    """What was done, and what the one message has to say: each of `says`. `files`: by name, else the text's."""

    text: str | bytes = f"resources:\n- {FUSE}\n"
    says: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


MISTAKES = {
    "a line indented unlike the others": Mistake(
        "resources:\n  - name: example.com/a\n   driver: chardev\n",
        ("config.yaml:3", "found broken YAML", "indented alike"),
    ),
    "a line indented too far": Mistake(
        "resources:\n- name: example.com/a\n  driver: chardev\n    options: {}\n",
        ("config.yaml:4", "found broken YAML", "indented alike"),
    ),
    "a tab": Mistake(
        "resources:\n- name: example.com/a\n\tdriver: chardev\n", ("config.yaml:3: found a tab, expected spaces",)
    ),
    "a ': ' within a value": Mistake(
        "resources:\n- name: example.com/a\n  driver: char: dev\n",
        ("config.yaml:3", "a value that contains ': ' needs quotes"),
    ),
    "a pattern in braces without quotes": Mistake(
        "resources:\n- {name: example.com/a, driver: chardev, options: {match: {kernel: ttyUSB[0-9]}}}\n",
        (
            "config.yaml:2: found broken YAML, expected a comma, or the closing bracket",
            "text with [, ], {, } or a comma",
        ),
    ),
    "a number with a zero before it for text": Mistake(
        "resources:\n- {name: example.com/a, driver: simulated, options: {count: 0403}}",
        ("found 0403, expected a number that doesn't begin with 0, or text in quotes; write 403,",),
    ),
    "no space after a colon": Mistake(
        "resources:\n- name: example.com/a\n  driver:chardev\n  options: {}\n",
        ('config.yaml:3: found "driver:chardev"', "write driver: chardev, with a space after the colon"),
    ),
    "no space after a resource's first colon": Mistake(
        "resources:\n- name:example.com/a\n  driver: chardev\n",
        ('config.yaml:2: found "name:example.com/a"', "write name: example.com/a, with a space after the colon"),
    ),
    "no space after a colon within braces": Mistake(
        f"resources:\n- {FUSE.replace('name: ', 'name:')}",
        ('config.yaml:2: resources[0].name: found "name:example.com/a"', "write name: example.com/a, with a space"),
    ),
    "no space after the only colon": Mistake(
        resource("env: A:b"), ('env: found "A:b", expected a mapping of string', "write A: b, with a space after the")
    ),
    "no space after the colon of the first line": Mistake(
        "resources:[]", ('config.yaml:1: found "resources:[]"', "write resources: []")
    ),
    "no space after the colon of a resource's only line": Mistake(
        "resources:\n- name:example.com/a",
        ('config.yaml:2: resources[0]: found "name:example.com/a"', "write name: example"),
    ),
    "no space after a dash": Mistake(
        "resources: []\n-name: {}", ("found an unknown key", "with a space after the dash")
    ),
    "a star without quotes": Mistake(
        resource("nodes: [*]"), ("config.yaml:2: found a '*' without quotes", 'in quotes; write "*"')
    ),
    "a pattern that begins with a star": Mistake(
        resource("nodes: [*-gpu]"), ("config.yaml:2: found a '*' without quotes", "in quotes")
    ),
    "an at sign without quotes": Mistake(resource("nodes: [@a]"), ("config.yaml:2: found text that begins with @",)),
    "a key that is a number": Mistake(
        resource("annotations: {1: a}"), ("found the key 1, expected keys that are strings", 'put it in quotes: "1"')
    ),
    "an octal number": Mistake(
        "resources:\n- {name: example.com/a, driver: simulated, options: {count: 010}}",
        (
            "config.yaml:2: resources[0].options.count: found 010, expected a number that doesn't begin with 0",
            'write 10, 0o10 if it is an octal number, or "010" if it is text',
        ),
    ),
    "a number with zeros before it": Mistake(
        resource("env: {A: 0089}"), ("env.A: found 0089, expected a number that", 'write 89, or "0089" if it is text')
    ),
    "an octal number for text": Mistake(resource("env: {MODE: 0o7}"), ("found 0o7", 'put it in quotes: "0o7"')),
    "half a character": Mistake(
        resource('env: {A: "\\ud800"}'), (r"env.A: found \ud800, expected text that can be written in UTF-8",)
    ),
    "half a character as a path": Mistake(
        'resources: []\nkubelet: {device_plugins_dir: "/\\ud800"}', (r"dir: found /\ud800, expected text that can be",)
    ),
    "half a character in a key": Mistake(resource('env: {"\\ud800": a}'), (r'found the key "\ud800", expected text',)),
    "a key written twice": Mistake(
        resource("refresh: 1m, refresh: 2m"),
        ("refresh: found a duplicate key, expected each key once; it is also at", "config.yaml:2"),
    ),
    "bytes of another encoding": Mistake(
        f"resources:\n- {FUSE}\n# caf\xe9".encode("latin-1"), ("config.yaml:3: found bytes that aren't UTF-8, 0xe9",)
    ),
    "a control character": Mistake("resources: []\n# \x1b", ("config.yaml:2: found broken YAML", "not allowed")),
    "a device as a configuration": Mistake(
        arguments=("--config", "/dev/zero"), says=("/dev/zero: found a character device, expected a file",)
    ),
    "a number in quotes": Mistake(
        'resources:\n- {name: example.com/a, driver: simulated, options: {count: "2"}}',
        ("config.yaml:2: resources[0].options.count", 'found "2", expected an integer', "write 2, without quotes"),
    ),
    "a driver that isn't installed": Mistake(
        "resources:\n- {name: example.com/a, driver: chrdev}",
        ('driver: found "chrdev", expected an installed driver: ', "chardev", "did you mean chardev?"),
    ),
    "a driver package that doesn't import": Mistake(
        "resources:\n- {name: example.com/a, driver: broken}",
        ("driver broken: it can't be loaded: ModuleNotFoundError: No module named 'no_such_module_anywhere'",),
    ),
    "a resource named twice": Mistake(
        f"resources:\n- {FUSE}\n- {FUSE}", ("config.yaml:3: resources[1].name", "each resource once", "config.yaml:2")
    ),
    "a resource named in two files": Mistake(
        files={"a.yaml": f"resources:\n- {FUSE}", "b.yaml": f"resources:\n- {FUSE}"},
        says=("b.yaml:2: resources[0].name", "each resource once", "a.yaml:2"),
    ),
    "a domain in capitals": Mistake(named("Example.com/a"), ('found "Example.com/a"', "lower case: example.com")),
    "a name without a domain": Mistake(named("fuse"), ('found "fuse"', "exactly one '/', between your domain and")),
    "a name with two slashes": Mistake(named("example.com/a/b"), ("exactly one '/'",)),
    "a name of Kubernetes' own": Mistake(named("kubernetes.io/a"), ("use a domain of your own",)),
    "a name that begins with requests.": Mistake(named("requests.example/a"), ("the kubelet refuses", "'requests.'")),
    "a name with an underscore in its domain": Mistake(named("my_lab.example/a"), ("the part before '/' is a domain",)),
    "a name with a space": Mistake(named("example.com/a b"), ("the part after '/' has letters, digits",)),
    "a duration without a unit": Mistake(
        resource("refresh: 30"), ("refresh: found 30, expected a duration", "write 30s")
    ),
    "a duration in words": Mistake(resource("keep_lost: 10 minutes"), ("found", "expected a duration", "write 10m")),
    "a prepare that the kubelet won't wait for": Mistake(
        resource("timeouts: {prepare: 40s}"),
        ("timeouts.prepare: found 40s, expected at most 28s", "the kubelet waits 30s"),
    ),
    "a key that is nearly right": Mistake(
        resource("keep-lost: 10m"), ("resources[0].keep-lost: found an unknown key", "did you mean keep_lost?")
    ),
    "resources misspelt": Mistake(
        f"resource:\n- {FUSE}", ("resource: found an unknown key", "did you mean resources?")
    ),
    "a driver's key beside options": Mistake(
        resource("permissions: r"), ("permissions: found an unknown key", "the driver's own keys belong under options")
    ),
    "one resource instead of a list": Mistake(
        "resources:\n  name: example.com/a\n  driver: chardev",
        ("resources: found a mapping, expected a list", "begin each of its items with '- '"),
    ),
    "a list instead of a mapping": Mistake(
        resource("env: [A=1]"), ("env: found a list, expected a mapping of string", "write 'key: value' lines")
    ),
    "no resources": Mistake("kubelet: {}", ("resources: found no resources, expected a list of resources",)),
    "an empty file": Mistake("", ("found an empty file, expected resources",)),
    "no such file": Mistake(
        arguments=("--config", "none.yaml"),
        says=("none.yaml: found no such file or directory, expected a configuration file; --config names another",),
    ),
    "a directory without a configuration": Mistake(
        files={"config.yml": f"resources:\n- {FUSE}"},
        says=("found no *.yaml in this directory, expected at least one; rename config.yml to config.yaml",),
    ),
    "a path instead of a list of paths": Mistake(
        chardev("paths: /dev/fuse"), ("options.paths", "expected a list of string", 'write ["/dev/fuse"]')
    ),
    "permissions of a file": Mistake(
        chardev("paths: [/dev/fuse], permissions: rx"),
        ("options.permissions: found 'rx', expected some of r, w and m",),
    ),
    "a relative path": Mistake(
        chardev("paths: [/dev/fuse, dev/kvm]"), ("options.paths[1]: found 'dev/kvm', expected an absolute path",)
    ),
    "a path outside of /dev": Mistake(chardev("paths: [/sys/x]"), ("options.paths[0]", "under /dev", "'/sys/x'")),
    "no paths": Mistake(
        "resources:\n- {name: example.com/a, driver: chardev}", ("options: found neither, expected either paths",)
    ),
    "two boards with one id": Mistake(
        f"resources:\n{boards('example.com/a', 'x', 'x')}", ("boards: found x twice, expected each id once",)
    ),
    "two resources with one pool": Mistake(
        f"resources:\n{boards('example.com/a', 'x')}{boards('example.com/b', 'x')}",
        ("config.yaml:3", 'found "board x", which the resource at', "config.yaml:2 claims too"),
    ),
    "no shares at all": Mistake(
        resource("shares: 0"), ("shares: found 0, expected a number of shares from 1 to 1000",)
    ),
    "a preference that there isn't": Mistake(resource("preference: pack"), ('found "pack"', "did you mean packed?")),
    "a variable's name with =": Mistake(resource('env: {"A=B": c}'), ('env: found "A=B"', "without '='")),
    **{
        f"an API server at {url}": Mistake(
            f"resources: []\ncluster: {{server: '{url}'}}",
            (f'config.yaml:2: cluster.server: found "{url}", expected a URL: https://HOST:PORT',),
        )
        for url in ("10.0.0.1:6443", "https://a:64430b", "https://a:99999", "https://fd00::1:6443", "https://a/b")
    },
    "a number in env": Mistake(resource("env: {A: 1}"), ("env.A: found 1, expected a string", 'in quotes: "1"')),
    "a boolean of YAML 1.1": Mistake(
        resource("mounts: [{host_path: /a, container_path: /b, read_only: no}]"),
        ('mounts[0].read_only: found "no", expected true or false', "write false"),
    ),
    "another boolean of YAML 1.1": Mistake(
        "resources:\n- {name: example.com/a, driver: simulated, options: {prepare: on}}",
        ('options.prepare: found "on", expected true or false', "write true"),
    ),
    "UTF-16": Mistake(f"resources:\n- {FUSE}".encode("utf-16"), ("found bytes that aren't UTF-8",)),
    "a file for a directory": Mistake(
        arguments=("--device-plugins-dir", "config.yaml"),
        says=("the device-plugins directory", "config.yaml, which is a file, expected the kubelet's directory"),
    ),
    "the kubelet's socket for its directory": Mistake(
        arguments=("--device-plugins-dir", "/var/lib/kubelet/device-plugins/kubelet.sock"),
        says=("a kubelet's socket, expected its directory: /var/lib/kubelet/device-plugins",),
    ),
}

DOUBTS = {
    "an empty list of resources": Mistake("resources: []", ("resources is empty, so nothing is served",)),
    "nothing below resources": Mistake("resources:\n", ("resources is empty, so nothing is served",)),
    "a pattern that doesn't match the node": Mistake(
        resource("nodes: [gpu-*]"), ("no resource is for node n1, only for those named gpu-*, so nothing is served",)
    ),
    "a resource that is turned off": Mistake(
        resource("nodes: []"), ("no resource is for node n1, only for none, so nothing is served",)
    ),
    "a variable in a value": Mistake(
        resource('env: {A: "${HOME}"}'), ("resources[0].env.A: values are literal, so ${HOME} stays as it is",)
    ),
    "a variable of the kubelet's": Mistake(
        resource("env: {A: $(NODE)}"), ("resources[0].env.A: values are literal, so $(NODE) stays as it is",)
    ),
    "a device node in two resources": Mistake(
        f"resources:\n- {FUSE}\n- {FUSE.replace('/a', '/b', 1)}",
        ("config.yaml:3: resources[1].options.paths[0]: example.com/a offers it too, through /dev/fuse, so that two",),
    ),
    "the node's memory": Mistake(chardev("paths: [/dev/mem]"), ("options.paths[0]: /dev/mem is offered: it gives",)),
    "a container that makes device nodes": Mistake(
        chardev("paths: [/dev/fuse], permissions: rwm"), ("options.permissions: m lets a container make the device",)
    ),
    "the host's root for a container": Mistake(
        resource("mounts: [{host_path: /, container_path: /host, read_only: false}]"),
        ("resources[0].mounts[0]: the container can write /, and so change what the node runs as root",),
    ),
    "a directory of the host's own for a container": Mistake(
        resource(
            "mounts: [{host_path: /x, container_path: /x}, {host_path: /etc/x/, container_path: /y, read_only: false}]"
        ),
        ("resources[0].mounts[1]: the container can write /etc/x, and",),
    ),
    "a mount over the container's root": Mistake(
        resource("mounts: [{host_path: /x, container_path: //}]"),
        ("mounts[0]: container_path is /, so the mount hides",),
    ),
    "a driver that fails to warn": Mistake(
        "resources:\n- {name: example.com/a, driver: fake, options: {mode: doubt}}",
        ("config.yaml:2: resources[0].options: its Options.warnings failed: ZeroDivisionError: oops",),
    ),
    "a driver that warns for ever": Mistake(
        "resources:\n- {name: example.com/a, driver: fake, options: {mode: ponder}}",
        ("config.yaml:2: example.com/a: its driver's Options.warnings hasn't returned within 2 s",),
    ),
    "a file with the other ending": Mistake(
        files={"a.yaml": f"resources:\n- {FUSE}", "b.yml": "resources: []"},
        says=("b.yml: it isn't read: only names that end in .yaml are",),
    ),
    "a directory that doesn't exist": Mistake(
        arguments=("--device-plugins-dir", "/no/such/directory"),
        says=("/no/such/directory doesn't exist; expected the directory that a kubelet makes when it starts",),
    ),
    "a directory that is too long for a socket": Mistake(
        arguments=("--device-plugins-dir", "/" + "x" * 62), says=("found a path of 63 bytes, expected at most 61",)
    ),
}

HARMLESS = {
    "a directory of the host's own that a container can only read": Mistake(
        resource("mounts: [{host_path: /etc, container_path: /x}, {host_path: /a, container_path: /b}]")
    ),
    **{
        f"an API server at {url}": Mistake(f"resources:\n- {FUSE}\ncluster: {{server: '{url}'}}")
        for url in ("https://10.0.0.1:6443", "https://[fd00::1]:6443", "https://api.example.com", "http://127.0.0.1:1")
    },
    "Windows line endings": Mistake(f"resources:\r\n- {FUSE}\r\n"),
    "a byte order mark": Mistake(f"\ufeffresources:\n- {FUSE}\n"),
    "yes and on in env": Mistake(resource("env: {A: yes, B: on}")),
}


def each(table):
    return pytest.mark.parametrize("mistake", table.values(), ids=table)


def some(table):
    """Each fifth. How a problem is written doesn't depend on what is wrong."""
    return each(dict(itertools.islice(table.items(), None, None, 5)))


@pytest.fixture
def do(line, fake_driver, tmp_path, monkeypatch):
    """Makes the mistake with a command."""

    def do(mistake, command, *more):
        home = tmp_path / "home"
        home.mkdir()
        monkeypatch.chdir(home)
        for name, text in (mistake.files or {"config.yaml": mistake.text}).items():
            (home / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        config = home if mistake.files else home / "config.yaml"
        given = ("--config", config, "--node-name", "n1", *more, *mistake.arguments)
        return line(command, *given)

    return do


@each(MISTAKES)
def test_check_tells_it(do, mistake):
    result = do(mistake, "check")
    assert result.exit_code == 2, result.output
    message, total = [text for text in result.stdout.splitlines() if not text.startswith("warning: fake-driver ")]
    assert total.startswith("1 problem in ")
    assert_told(message, mistake)
    assert result.stderr == ""


@some(MISTAKES)
def test_check_tells_it_in_json(do, mistake):
    result = do(mistake, "check", "--output", "json")
    assert result.exit_code == 2
    verdict = json.loads(result.stdout)
    (problem,) = verdict["problems"]
    assert_told(spelt(problem), mistake)
    assert not verdict["valid"]
    assert result.stderr == ""


@each(DOUBTS)
def test_check_warns_of_it(do, mistake):
    result = do(mistake, "check")
    assert result.exit_code == 0, result.output
    (message,) = [text for text in result.stdout.splitlines() if text.startswith("warning: ") and "broken" not in text]
    assert_told(message, mistake)


@some(DOUBTS)
def test_check_warns_of_it_in_json(do, mistake):
    result = do(mistake, "check", "--output", "json")
    assert result.exit_code == 0, result.output
    (warning,) = [one for one in json.loads(result.stdout)["warnings"] if "broken" not in one["hint"]]
    assert_told(spelt(warning), mistake)


@each(HARMLESS)
def test_correct_configurations(do, mistake):
    result = do(mistake, "check", "--output", "json")
    assert result.exit_code == 0
    verdict = json.loads(result.stdout)
    assert not [one for one in verdict["warnings"] if "broken" not in one["hint"]]


def assert_told(message, mistake):
    for words in mistake.says:
        assert words in message
    assert "Traceback" not in message


def spelt(problem):
    """A problem of the JSON as its text has it."""
    place = Place(*(problem.pop(part) for part in ("file", "line", "column", "key")))
    return str(Problem(place, **problem))


class TestDevices:
    def test_a_glob_that_matches_nothing(self, do):
        result = do(Mistake(chardev("paths: [/dev/no-such-thing*]")), "devices")
        assert result.exit_code == 0
        assert result.stdout.startswith("example.com/a: no devices: driver chardev finds none for the options at ")
        assert result.stdout.endswith("config.yaml:2\n")

    @pytest.mark.parametrize(("path", "reason"), [("no-such-thing", "no such device node: /dev/no-such"), ("fd", "")])
    def test_no_device_node(self, do, path, reason):
        result = do(Mistake(chardev(f"paths: [/dev/{path}]")), "devices")
        assert result.exit_code == 0
        assert f"Unhealthy  {reason}" in result.stdout

    @pytest.mark.parametrize("output", ["table", "json"])
    def test_a_driver_whose_ids_collide(self, do, output):
        text = "resources:\n- {name: example.com/a, driver: fake, options: {mode: twice}}"
        result = do(Mistake(text), "devices", "--output", output)
        assert result.exit_code == 1
        assert "the driver failed: devices() listed the id 'n1-0' twice; an id means one device" in result.stdout

    @pytest.mark.parametrize("output", ["table", "json"])
    def test_pattern_without_a_match(self, do, output):
        result = do(DOUBTS["a pattern that doesn't match the node"], "devices", "--output", output)
        assert result.exit_code == 0
        told, printed = (result.stdout, "") if output == "table" else (result.stderr, result.stdout)
        assert told == "no resource is for node n1, only for those named gpu-*, so nothing is served\n"
        assert printed in {"", "[]\n"}


class Run:
    """`dpgateway run` in a folder of its own, with a short path, as root or as somebody else."""

    def __init__(self, folder):
        self.folder = folder
        self.started = []
        (folder / "device-plugins").mkdir()
        self.write(f"resources:\n- {FUSE}\n")

    def write(self, text):
        """What it keeps stays in its folder: nobody may not look where another user's gateway keeps that."""
        (self.folder / "config.yaml").write_text(f"{text}\nstate_dir: {self.folder}/state\n")

    def start(self, *arguments, as_nobody=False, log="json"):
        given = ["--config=config.yaml", "--device-plugins-dir=device-plugins", "--node-name=n1", f"--log-format={log}"]
        command = [sys.executable, "-c", AS_NOBODY] if as_nobody else [*COMMAND]
        command += ["run", *given, *arguments]
        process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.started.append(process)
        return process

    def fails(self, *arguments, **keys):
        """Its exit code and the lines of its log, but what a busy machine is waited for."""
        process = self.start(*arguments, **keys)
        _, log = process.communicate(timeout=BUSY)
        slow = re.compile("hasn't been read for|waiting for the driver .* for [0-9]+ s now")
        return process.returncode, [line for line in log.splitlines() if not slow.search(line)]

    def says(self, words, process=None):
        """The entry of its log that has these words; only those before it are lost."""
        process = process or self.start()
        deadline = threading.Timer(BUSY, process.kill)
        deadline.start()
        for line in process.stderr:
            entry = json.loads(line)
            if words in entry["message"]:
                deadline.cancel()
                return entry
        raise AssertionError(f"it ended without: {words}")

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


class TestRun:
    @pytest.fixture
    def run(self):
        folder = Path(tempfile.mkdtemp(prefix="mistakes-"))
        folder.chmod(0o755)
        run = Run(folder)
        yield run
        run.close()
        shutil.rmtree(folder)

    @pytest.mark.parametrize("log", ["text", "json"])
    def test_wrong_configuration_is_one_log_line(self, run, log):
        run.write(resource("shares: 0"))
        code, lines = run.fails(log=log)
        assert code == 2
        (line,) = lines
        text = "config.yaml:2: resources[0].shares: found 0, expected a number of shares from 1 to 1000"
        assert line.endswith(f"ERROR   {text}") if log == "text" else json.loads(line)["message"] == text

    def test_keys_and_options_at_once(self, run):
        run.write("resources:\n- {name: example.com/a, driver: chardev, shares: 0, options: {paths: [relative]}}")
        code, lines = run.fails()
        assert code == 2
        told = [json.loads(line)["message"] for line in lines]
        assert [text.split(": ")[1] for text in told] == ["resources[0].shares", "resources[0].options.paths[0]"]

    def test_driver_not_installed(self, run):
        run.write("resources:\n- {name: example.com/a, driver: chrdev}")
        entry = run.says("the resource failed")
        assert (entry["level"], entry["resource"]) == ("error", "example.com/a")
        assert "it isn't installed; installed drivers: chardev, " in entry["message"]
        assert entry["message"].endswith("; did you mean chardev?")
        assert "exception" not in entry

    def test_a_glob_that_matches_nothing(self, run):
        run.write(chardev("paths: [/dev/no-such-thing*]"))
        entry = run.says("there are no devices yet: driver chardev finds none for the options at config.yaml:2")
        assert (entry["level"], entry["resource"]) == ("warning", "example.com/a")

    def test_pattern_without_a_match(self, run):
        run.write(resource("nodes: [gpu-*]"))
        entry = run.says("no resource is for node n1, only for those named gpu-*, so nothing is served")
        assert entry["level"] == "warning"

    def test_a_file_for_a_directory(self, run):
        code, (line,) = run.fails("--device-plugins-dir=config.yaml")
        assert code == 2
        assert (
            f"found {run.folder}/config.yaml, which is a file, expected the kubelet's directory"
            in json.loads(line)["message"]
        )

    def test_directory_too_long_for_a_socket(self, run):
        entry = run.says("expected at most 61", run.start(f"--device-plugins-dir=/{'x' * 62}"))
        assert "a kubelet can't dial our sockets below /xxx" in entry["message"]

    def test_not_as_root(self, run):
        code, (*_, line) = run.fails(as_nobody=True)  # before it: nobody may not run a Python below /root
        assert code == 2
        told = (
            f"the device-plugins directory: uid 65534 may not make sockets in {run.folder}/device-plugins; run as root"
        )
        assert json.loads(line)["message"] == told

    @pytest.mark.parametrize("mode", [0o600, 0o700])
    def test_unreadable_configuration(self, run, mode):
        hidden = run.folder / "hidden"
        hidden.mkdir(mode=0o755 if mode == 0o600 else mode)
        (hidden / "config.yaml").touch(mode)
        code, lines = run.fails("--config=hidden/config.yaml", as_nobody=True)
        assert code == 2
        told = [json.loads(line)["message"] for line in lines]
        # On a machine that has a gateway: it isn't known where this one would keep its state.
        if told[-1].startswith("the last good configuration can't be used: "):
            told.pop()
        assert told[-1] == (
            "hidden/config.yaml: found a path that can't be read (Permission denied), expected a readable file or "
            "directory; let uid 65534 read it, or run as root"
        )

    def test_a_second_gateway(self, run):
        run.write(chardev("paths: [/dev/no-such-thing*]"))
        first = run.start()
        run.says("there are no devices yet", first)  # it serves
        entry = run.says("waiting because another gateway serves example.com/a: pid ")
        assert f": pid {first.pid} on " in entry["message"]
        assert entry["message"].endswith("; this one takes over once it is ready")
        assert entry["level"] == "warning"

    def test_stale_kubelet_socket(self, run):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(run.folder / "device-plugins/kubelet.sock"))
        entry = run.says("registering failed")
        assert (
            f"nothing listens on {run.folder}/device-plugins/kubelet.sock: a kubelet left it behind" in entry["message"]
        )

    @pytest.mark.parametrize("command", ["demo", "simulate --help", "preflight --rehearse --to=1.37"])
    def test_the_simulator_without_its_extra(self, run, command):
        """A module that raises is what an absent package looks like."""
        for name in ("grpclib", "betterproto", "h2"):
            absent = f"raise ModuleNotFoundError('No module named {name}', name='{name}')"
            (run.folder / f"{name}.py").write_text(absent)
        environment = os.environ | {"PYTHONPATH": str(run.folder), "DPGATEWAY_CONFIG": str(run.folder / "config.yaml")}
        done = subprocess.run(
            [*COMMAND, *command.split()], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].endswith("pip install 'dpgateway[simulator]'")
        assert "Traceback" not in done.stderr

    def test_demo_without_its_drivers(self, run):
        """A package without entry points hides the installed one of that name."""
        for name in ("chardev", "fpga"):
            hidden = run.folder / f"dpgateway_{name}-0.dist-info"
            hidden.mkdir()
            (hidden / "METADATA").write_text(f"Name: dpgateway-{name}\n")
        environment = os.environ | {"PYTHONPATH": str(run.folder)}
        done = subprocess.run([*COMMAND, "demo"], env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert "needs the drivers fpga, chardev too: install dpgateway-fpga dpgateway-chardev" in done.stderr
