"""``dpgateway new-driver``: writes the skeleton of a driver package, whose tests pass as written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from shlex import quote
from string import Template

import click

from dpgateway.cli.output import print_line
from dpgateway.drivers import discovery
from dpgateway.errors import ConfigurationError, GatewayError

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MOST = 40
"""Characters of a name, which becomes part of file names and of the class's name."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The names in a new driver's package, all derived from ``name``."""

    name: str

    @property
    def distribution(self) -> str:
        return f"dpgateway-{self.name}"

    @property
    def package(self) -> str:
        return self.distribution.replace("-", "_")

    @property
    def driver_class(self) -> str:
        return f"{self._camel}Driver"

    @property
    def options_class(self) -> str:
        return f"{self._camel}Options"

    @property
    def _camel(self) -> str:
        return "".join(part.capitalize() for part in self.name.split("-"))

    def texts(self) -> dict[str, tuple[str, str]]:
        """The text and the purpose of each file, by its path in the new directory."""
        package = f"src/{self.package}"
        return {
            "pyproject.toml": (self._filled("pyproject.toml"), "the package, and the driver's entry point"),
            f"{package}/__init__.py": (self._filled("driver.py"), "the driver"),
            f"{package}/py.typed": ("", ""),
            "tests/test_contract.py": (self._filled("test_contract.py"), "tests what every driver has to do"),
            "tests/test_driver.py": (self._filled("test_driver.py"), "tests what only this driver does"),
            "README.md": (self._filled("README.md"), ""),
            ".gitignore": (self._filled("gitignore"), ""),
        }

    def _filled(self, template: str) -> str:
        text = (files("dpgateway.cli") / "skeleton" / f"{template}.tmpl").read_text(encoding="utf-8")
        names = {
            key: getattr(self, key) for key in ("name", "distribution", "package", "driver_class", "options_class")
        }
        return Template(text).substitute(names)


@click.command("new-driver")
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    envvar="DPGATEWAY_DIRECTORY",
    show_envvar=True,
    help="Where to write the package: a directory that doesn't exist, or is empty.  [default: dpgateway-NAME]",
)
def new_driver(name: str, directory: Path | None) -> None:
    """Write the beginning of a driver package, ready to install and to test.

    NAME is the driver's name in configurations, such as gpio or my-sensor.
    """
    _check(name)
    skeleton = Skeleton(name)
    directory = directory or Path(skeleton.distribution)
    try:
        _write(directory, {path: text for path, (text, _) in skeleton.texts().items()})
    except OSError as error:
        raise GatewayError(f"{error.filename or directory} can't be written: {error.strerror}") from error
    _tell(skeleton, directory)


def _check(name: str) -> None:
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


def _write(directory: Path, texts: dict[str, str]) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigurationError(
            f"{directory} exists, expected a new or an empty directory; --directory chooses another"
        )
    for path, text in texts.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _tell(skeleton: Skeleton, directory: Path) -> None:
    print_line(f"wrote {directory}:", "green")
    width = max(map(len, skeleton.texts()))
    for path, (_, what) in skeleton.texts().items():
        print_line(f"  {path:<{width}}  {what}".rstrip())
    place = quote(str(directory))
    print_line("next, in the environment where dpgateway is installed:", "green")
    for line in (f"cd {place}", "pip install -e '.[test]'", "pytest", "dpgateway drivers"):
        print_line(f"  {line}")
