"""``dpgateway import``: converts another device plugin's configuration, and reports parts that can't be kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from ruamel.yaml import YAML

from dpgateway.cli.options import completed, logged, output_option
from dpgateway.cli.output import apart, print_json, print_table
from dpgateway.config import did_you_mean
from dpgateway.config.document import from_json
from dpgateway.errors import ConfigurationError, GatewayError
from dpgateway.importing import Imported, Importer, Source, installed


@dataclass(frozen=True, slots=True)
class _Target:
    """The file to write, and the node's /dev."""

    output_file: Path | None
    force: bool
    dev: Path


@click.command("import")
@logged
@output_option
@click.option(
    "--output-file",
    type=click.Path(path_type=Path),
    envvar="DPGATEWAY_OUTPUT_FILE",
    show_envvar=True,
    help="Where to write the configuration.  [default: standard output]",
)
@click.option(
    "--force",
    is_flag=True,
    envvar="DPGATEWAY_FORCE",
    show_envvar=True,
    help="Write the output file even if there is one of this name.",
)
@click.option(
    "--dev",
    type=click.Path(path_type=Path),
    default=Path("/dev"),
    envvar="DPGATEWAY_DEV",
    show_default=True,
    show_envvar=True,
    help="Where the node's /dev is seen, for a plugin that names resources after what is there.",
)
@click.argument("plugin", required=False, shell_complete=completed(installed))
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.pass_context
def import_(context: click.Context, /, plugin: str | None, file: Path | None, output: str, **options: Any) -> None:  # noqa: ANN401
    """Make a configuration of another device plugin's.

    PLUGIN is a name that "dpgateway import" without any arguments lists. FILE is what you have of that plugin: its own
    configuration file, a manifest with its ConfigMap or DaemonSet, or its command line.

    Standard error has what can't be kept, and why. The exit code is then 1; the configuration is written all the same.
    """
    importers = installed()
    if plugin is None:
        _list(importers, output)
        return
    if file is None:
        raise ConfigurationError(f"FILE: found nothing, expected the file that has the configuration of {plugin}")
    importer = _named(plugin, importers)
    target = _Target(**options)
    with apart():
        imported = importer.load()(Source.read(file, target.dev))
    text = imported.text(f"What {plugin} served, made from {file.name} by dpgateway import.")
    # Only a check: the other plugin's names may be invalid in ours.
    from_json(YAML(typ="safe", pure=True).load(text), f"what was made of {file.name}")
    if target.output_file is not None:
        _write(target.output_file, text, force=target.force)
    _tell(imported, text, output, written=target.output_file is not None)
    context.exit(1 if imported.not_kept else 0)


def _list(importers: dict[str, Importer], output: str) -> None:
    if output == "json":
        print_json([{"name": one.name, "distribution": one.distribution} for one in importers.values()])
    else:
        print_table(("plugin", "distribution"), [(one.name, one.distribution) for one in importers.values()])


def _named(plugin: str, importers: dict[str, Importer]) -> Importer:
    if plugin not in importers:
        hint = did_you_mean(plugin, importers)
        known = ", ".join(importers) or "nothing, because no installed package can import anything"
        raise ConfigurationError(f"PLUGIN: found {plugin!r}, expected {known}" + (f"; {hint}" if hint else ""))
    return importers[plugin]


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        told = f"--output-file: {path} exists, expected a new file; --force overwrites it"
        raise ConfigurationError(told) from error
    except OSError as error:
        raise GatewayError(f"{path} can't be written: {error.strerror}") from error


def _tell(imported: Imported, text: str, output: str, *, written: bool) -> None:
    if output == "json":
        names = [one.name for one in imported.resources]
        not_kept = [{**(parts := asdict(one)).pop("place"), **parts} for one in imported.not_kept]
        print_json({"configuration": text, "resources": names, "not_kept": not_kept})
        return
    if not written:
        click.echo(text, nl=False)
    for one in imported.not_kept:
        click.secho(f"not kept: {one}", fg="yellow", err=True)
