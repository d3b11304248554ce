"""``dpgateway new-driver``: writes the skeleton of a driver package, whose tests pass as written."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from shutil import rmtree
from string import Template

import click

from dpgateway.cli.options import GivenPath
from dpgateway.cli.output import print_line
from dpgateway.drivers import discovery
from dpgateway.errors import ConfigurationError, GatewayError

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MOST = 40
"""Characters of a name, which becomes part of file names and of the class's name."""


def package_of(name: str) -> str:
    """The module of the driver ``name``."""
    return f"dpgateway_{name.replace('-', '_')}"


def skeleton(name: str) -> dict[str, tuple[str, str]]:
    """The text and the purpose of each file of a new driver's package, by its path in the new directory."""
    package, camel = package_of(name), "".join(part.capitalize() for part in name.split("-"))
    names = {
        "name": name,
        "distribution": f"dpgateway-{name}",
        "package": package,
        "driver_class": f"{camel}Driver",
        "options_class": f"{camel}Options",
    }
    made = {}
    for path, template, purpose in (
        ("pyproject.toml", "pyproject.toml", "the package, and the driver's entry point"),
        (f"src/{package}/__init__.py", "driver.py", "the driver"),
        (f"src/{package}/py.typed", "", ""),
        ("tests/test_contract.py", "test_contract.py", "tests what every driver has to do"),
        ("tests/test_driver.py", "test_driver.py", "tests what only this driver does"),
        ("README.md", "README.md", ""),
        (".gitignore", "gitignore", ""),
    ):
        file = files("dpgateway.cli") / "skeleton" / f"{template}.tmpl"
        text = Template(file.read_text(encoding="utf-8")).substitute(names) if template else ""
        made[path] = text, purpose
    return made


@click.command("new-driver")
@click.argument("name")
@click.option(
    "--directory",
    type=GivenPath(path_type=Path),
    envvar="DPGATEWAY_DIRECTORY",
    show_envvar=True,
    help="Where to write the package: a directory that doesn't exist, or is empty.  [default: dpgateway-NAME]",
)
def new_driver(name: str, directory: Path | None) -> None:
    """Write the beginning of a driver package, ready to install and to test.

    NAME is the driver's name in configurations, such as gpio or my-sensor.
    """
    if not NAME.fullmatch(name) or len(name) > MOST:
        hint = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")[:MOST]
        suggestion = f"; did you mean {hint}?" if NAME.fullmatch(hint) else ""
        expected = f"expected at most {MOST} lower-case letters, digits and single hyphens, beginning with a letter"
        raise ConfigurationError(f"NAME: found {name!r}, {expected}{suggestion}")
    if name.startswith("dpgateway"):
        raise ConfigurationError(
            f"NAME: found {name!r}, expected a name without dpgateway, which is added to the package's name"
        )
    if name in discovery.installed():
        raise ConfigurationError(
            f"NAME: found {name!r}, which is an installed driver's name; expected a name that no driver has"
        )
    if find_spec(package := package_of(name)) is not None:  # dpgateway_start is the gateway's own, for example
        raise ConfigurationError(
            f"NAME: found {name!r}, whose package {package} is installed; expected a name that no package has"
        )

    directory = directory or Path(f"dpgateway-{name}")
    try:
        made = skeleton(name)
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise ConfigurationError(
                f"{directory} exists, expected a new or an empty directory; --directory chooses another"
            )
        try:
            for path, (text, _) in made.items():
                file = directory / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
        except OSError:
            rmtree(directory, ignore_errors=True)  # all in it was written here, and the next try wants it empty
            raise
    except OSError as error:
        raise GatewayError(f"{error.filename or directory} can't be written: {error.strerror}") from error

    print_line(f"wrote {directory}:", "green")
    width = max(map(len, made))
    for path, (_, purpose) in made.items():
        print_line(f"  {path:<{width}}  {purpose}".rstrip())
    print_line("next, in the environment where dpgateway is installed:", "green")
    for line in (f"cd {quote(str(directory))}", "pip install -e '.[test]'", "pytest", "dpgateway drivers"):
        print_line(f"  {line}")
