"""``dpgateway config``: helps to write a configuration."""

from __future__ import annotations

from importlib.resources import files

import click


@click.group()
def config() -> None:
    """Print an example of a configuration."""


@config.command()
def example() -> None:
    """Print a configuration with every key and its meaning.

    It is valid as it is: dpgateway config example > config.yaml; dpgateway check --config config.yaml
    """
    click.echo((files("dpgateway.cli") / "example.yaml").read_text(encoding="utf-8"), nl=False)
