import dataclasses
import re
from pathlib import Path

import pytest
from dpgateway_chardev.options import CharDeviceOptions
from dpgateway_chardev.settings import Access


def options(**changed):
    return CharDeviceOptions(**({"paths": ("/dev/ttyUSB0",)} | changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"paths": ()},
            "expected either paths (device nodes by name) or match (devices by their properties), found neither",
        ),
        ({"paths": ("ttyUSB0",)}, "paths[0]: expected an absolute path, found 'ttyUSB0'"),
        ({"paths": ("/dev/a\0",)}, r"paths[0]: expected an absolute path, found '/dev/a\x00'"),
        ({"paths": ("/dev/a", "/etc/passwd")}, "paths[1]: expected a path or glob under /dev, such as /dev/ttyUSB*"),
        ({"paths": ("/dev",)}, "paths[0]: expected a path or glob under /dev"),
        ({"paths": ("/dev/../etc/passwd",)}, "paths[0]: expected a path without '.', '..'"),
        ({"paths": ("/dev/serial/",)}, "paths[0]: expected a path without"),
        ({"paths": ("/dev//x",)}, "paths[0]: expected a path without"),
        ({"paths": ("/dev/a", "/dev/a")}, "paths[1]: '/dev/a' is listed twice"),
        ({"paths": ("/dev/a::1",)}, "paths[0]: device id 'a::1' ends in '::' and digits"),
        ({"exclude": ("/tmp/*",)}, "exclude[0]: expected a path or glob under /dev"),
        ({"type": "pipe"}, "type: expected char, block or any, found 'pipe'"),
        ({"permissions": ""}, "permissions: expected some of r, w and m, found ''"),
        ({"permissions": "rx"}, "permissions: expected some of r, w and m, found 'rx'"),
        ({"permissions": "rr"}, "permissions: expected each letter once, found 'rr'"),
        ({"container_path": "modem"}, "container_path: expected an absolute path, found 'modem'"),
        ({"container_path": "/dev/../x"}, "container_path: expected a path without"),
        ({"container_path": "/dev/tty{index}"}, "container_path: expected {name}, {id} or {devnode}, found '{index}'"),
        ({"container_path": "//x"}, "container_path: expected a path without"),
        (
            {"access": (Access("{symlink:/dev/x}", 1),)},
            "access[0]: host_path: expected a path, perhaps with {name}, {id} or {devnode}, found '{symlink:/dev/x}'",
        ),
        ({"dev": "host"}, "dev: expected an absolute path, found 'host'"),
        ({"dev": "//x"}, "dev: expected a path without"),
    ],
)
def test_a_wrong_option_is_refused(changed, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        options(**changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"paths": "/dev/ttyUSB0"}, "paths: expected a list of paths, found '/dev/ttyUSB0'"),
        ({"paths": (7,)}, "paths[0]: expected a path, found 7"),
    ],
)
def test_a_wrong_type_is_refused(changed, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        options(**changed)


def test_reports_all_errors_at_once():
    with pytest.raises(ExceptionGroup) as caught:
        options(paths=("tty", "/dev/a::1"), exclude=("/tmp/*", "/dev/a::1"), permissions="rr", container_path="x{y}")
    keys = [str(error).partition(":")[0] for error in caught.value.exceptions]
    assert keys == ["paths[0]", "paths[1]", "exclude[0]", "permissions", "container_path", "container_path"]


def test_paths_and_globs_are_told_apart():
    some = options(paths=("/dev/a", "/dev/b?", "/dev/c/**", "/dev/d[0-9]", "/dev/{e}"), container_path="/dev/{name}")
    assert some.literals == ("a", "{e}")
    assert some.globs == ("b?", "c/**", "d[0-9]")


def test_every_option_is_in_the_readme():
    readme = Path(__file__).parents[1].joinpath("README.md").read_text()
    table = re.findall(r"^\| `(\w+)` \| (?:`(.+?)`|required|the host's path) \|", readme, re.MULTILINE)
    made = options()
    defaults = {one.name: getattr(made, one.name) for one in dataclasses.fields(made)} | {"paths": ()}
    assert [name for name, _ in table] == list(defaults)
    written = {name: {"()": "[]", "None": "null"}.get(str(default), str(default)) for name, default in defaults.items()}
    written["nodes"] = "{devnode}"
    assert all(text == written[name] for name, text in table if text)


@pytest.mark.parametrize(
    ("paths", "warnings"),
    [
        (["/dev/mem"], ["paths[0]: /dev/mem is offered"]),
        (["/dev/fuse", "/dev/[mp]*"], ["paths[1]: /dev/mem is offered", "paths[1]: /dev/port is offered"]),
        (["/dev/ttyS*", "/dev/fuse"], []),
    ],
)
def test_who_offers_the_nodes_memory_is_warned(paths, warnings):
    assert [text.partition(":")[0] + ":" + text.split(":")[1] for text in options(paths=paths).warnings({})] == warnings


@pytest.mark.parametrize("path", ["/dev/*", "/dev/**", "/dev/**/*"])
def test_who_offers_everything_is_warned(path):
    without_memory = options(paths=[path], exclude=("/dev/*mem", "/dev/port"))
    assert list(without_memory.warnings({})) == [
        "paths[0]: every device node is offered, also those that are added later"
    ]


@pytest.mark.parametrize(
    ("paths", "exclude", "theirs", "their_exclude", "warned"),
    [
        (["/dev/ttyUSB0"], (), ["/dev/ttyUSB0"], (), True),
        (["/dev/ttyUSB0"], (), ["/dev/ttyUSB*"], (), True),
        (["/dev/ttyUSB*"], (), ["/dev/ttyUSB0"], (), True),
        (["/dev/tty*"], (), ["/dev/ttyUSB*"], (), True),
        (["/dev/tty[AB]"], (), ["/dev/tty[AB]"], (), True),
        (["/dev/ttyUSB*"], ("/dev/ttyUSB0",), ["/dev/ttyUSB0"], (), False),
        (["/dev/ttyUSB0"], (), ["/dev/ttyUSB*"], ("/dev/ttyUSB0",), False),
        (["/dev/ttyUSB0"], ("/dev/ttyUSB0",), ["/dev/ttyUSB0"], (), True),
        (["/dev/ttyUSB0"], (), ["/dev/ttyUSB1", "/dev/ttyS*"], (), False),
    ],
)
def test_warns_of_shared_nodes(paths, exclude, theirs, their_exclude, warned):
    ours, other = options(paths=paths, exclude=exclude), options(paths=theirs, exclude=their_exclude)
    assert any("example.com/b offers it too" in text for text in ours.warnings({"example.com/b": other})) == warned
    assert not list(ours.warnings({"example.com/b": options(paths=theirs, type="block")}))
