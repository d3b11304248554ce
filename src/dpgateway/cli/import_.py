"""``dpgateway import``: converts another device plugin's configuration, and reports parts that can't be kept."""

from __future__ import annotations

import errno
import re
import stat
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import click

from dpgateway.cli.options import GivenPath, completed, logged, output_option
from dpgateway.cli.output import apart, print_json, print_table
from dpgateway.config import InvalidConfiguration, did_you_mean
from dpgateway.config.document import from_json
from dpgateway.drivers import discovery
from dpgateway.drivers.discovery import Found
from dpgateway.drivers.options import completed as completed_entry
from dpgateway.errors import ConfigurationError, GatewayError, printable
from dpgateway.importing import (
    Imported,
    ImportedResource,
    Importer,
    NotKept,
    Source,
    explained,
    for_nodes,
    installed,
    needed,
    refused,
    without_variables,
)
from dpgateway.kit.files import write

_HOW_TO, _MATCH = "docs/how-to/replace-a-plugin.md", "docs/how-to/match-devices.md"
_ENDING = re.compile("-dev[a-z]*-[a-z]+$")
_BY_KIND_OF_NODE = (
    "and a configuration has each name once: if they are for different nodes, make a configuration for each kind of "
    "node"
)
_ONLY_ITSELF = {errno.EBUSY, errno.EROFS, errno.EACCES, errno.EPERM}
"""Of a file that may be written, and not replaced: it is a mount, or its directory is another user's."""
_IN_PROFILES = "a profile of the chart with it, as docs/how-to/install-cluster.md says"
_OTHER_NAMES: Mapping[str, Set[str]] = {
    "akri": {"akri"},
    "generic-device-plugin": {"gdp", "squat", "microshift"},
    "intel-device-plugins": {"intel", "gpudeviceplugin", "qat", "sgx", "dsa", "iaa", "dlb", "npu"},
    "k8s-host-device-plugin": {"everpeace"},
    "k8s-hostdev-plugin": {"hostdev", "honkiko"},
    "k8s-rdma-shared-dev-plugin": {"rdma", "nicclusterpolicy", "nicnodepolicy"},
    "kubevirt": {"hco", "hyperconverged"},
    "smarter-device-manager": {"smarter", "sdm"},
    "sriov-network-device-plugin": {"sriov", "sriovdp", "sriovnetworknodepolicy"},
}
"""Words in the names of importers' sources: images, charts, objects."""
_EXAMPLES: Mapping[str, Set[str]] = {
    "amd-gpu.yaml or examples/gke-nvidia-gpu": {"k8s-device-plugin"},
    "kubevirt-pci": {"kubevirt-gpu-device-plugin"},
    "gke-nvidia-gpu": {"nvidia", "gke", "mig", "mps", "gpu-operator"},
    "amd-gpu": {"amd", "amdgpu", "rocm"},
    "rdma-per-vf": {"hustcat", "tencent"},
    "xilinx-fpga": {"xilinx", "alveo"},
    "solarflare-onload": {"solarflare", "onload", "sfc"},
    "intel-vpu": {"vpu", "hddl"},
    "kubevirt-device-plugins-kvm": {"kvm"},
}
"""Words of the names of plugins that an example replaces."""


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
    type=GivenPath(path_type=Path),
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
    type=GivenPath(path_type=Path),
    default=Path("/dev"),
    envvar="DPGATEWAY_DEV",
    show_default=True,
    show_envvar=True,
    help="Where the node's /dev is seen, for a plugin that names resources after what is there.",
)
@click.option(
    "--node-label",
    "labels",
    metavar="KEY=VALUE",
    multiple=True,
    envvar="DPGATEWAY_NODE_LABEL",
    show_envvar=True,
    help="Import what nodes with this label have, and leave out what nodeSelectors give to other nodes. Repeat it for "
    "several labels.",
)
@click.argument("plugin", required=False, shell_complete=completed(installed))
@click.argument("file", required=False, type=GivenPath(path_type=Path))
@click.pass_context
def import_(
    context: click.Context,
    /,
    plugin: str | None,
    file: Path | None,
    output: str,
    labels: tuple[str, ...],
    **options: Any,  # noqa: ANN401
) -> None:
    """Convert another device plugin's configuration.

    PLUGIN is a name that "dpgateway import" without any arguments lists. FILE is what you have of that plugin: its own
    configuration file, a manifest with its ConfigMap or DaemonSet, or its command line.

    Standard error has what can't be kept, and why. The exit code is then 1; the configuration is written all the same.
    """
    importers = installed()
    if plugin is None:
        if output == "json":
            print_json([{"name": one.name, "distribution": one.distribution} for one in importers.values()])
        else:
            print_table(("plugin", "distribution"), [(one.name, one.distribution) for one in importers.values()])
        return
    importer = _named(plugin, importers)
    if file is None:
        raise ConfigurationError(f"FILE: found nothing, expected the file that has the configuration of {plugin}")
    target, wanted = _Target(**options), {}
    for label in labels:
        key, equals, value = label.partition("=")
        if not key or not equals:
            raise ConfigurationError(f"--node-label: found {label!r}, expected KEY=VALUE")
        wanted[key] = value
    with apart():
        source = Source.read(file, target.dev)
        try:
            imported = for_nodes(without_variables(importer.load()(source)), wanted)
        except InvalidConfiguration as error:
            raise explained(error) from error
        imported = _accepted(imported, source)
    text = imported.text(f"What {importer.name} served, made from {file.name} by dpgateway import.")
    if target.output_file is not None:
        _write(target.output_file, text, force=target.force)
    _tell(imported, text, output, written=target.output_file is not None)
    context.exit(1 if imported.not_kept else 0)


def _accepted(imported: Imported, source: Source) -> Imported:
    """Reports broken documents, and drops resources that `dpgateway check` would refuse: names, counts and options that
    are valid in the plugin needn't be valid here. Duplicates are dropped, too.
    """
    drivers = {one.name: one.load() for one in discovery.named({one.driver for one in imported.resources}).values()}
    accepted: dict[str, ImportedResource] = {}
    not_kept = list(map(refused, source.broken))
    for one in imported.resources:
        first = accepted.get(one.name)
        if first is not None and (both := _both(first, one)) is not None:
            accepted[one.name] = both
            continue
        twice = _twice(first, one, source) if first is not None else ""
        if why := twice or "; ".join(_problems(one, drivers.get(one.driver))):
            not_kept.append(NotKept(one.place, "the resource", why, one.name))
        else:
            accepted[one.name] = one
    return Imported(tuple(accepted.values()), (*imported.not_kept, *not_kept))


def _both(first: ImportedResource, other: ImportedResource) -> ImportedResource | None:
    """A resource that is written twice, for the nodes of both; None if there are other differences."""
    nodes = [one.more.get("nodes", ()) for one in (first, other)]
    same = [{key: value for key, value in one.plain().items() if key != "nodes"} for one in (first, other)]
    if same[0] != same[1]:
        return None
    rest = {key: value for key, value in first.more.items() if key != "nodes"}
    named = {"nodes": list(dict.fromkeys(chain.from_iterable(nodes)))} if all(nodes) else {}
    warnings = tuple(dict.fromkeys((*first.warnings, *other.warnings)))
    return replace(first, more=named | rest, warnings=warnings)


def _twice(first: ImportedResource, other: ImportedResource, source: Source) -> str:
    """Why another resource of one name isn't kept, and what to do."""
    nodes = []
    for one in (first, other):
        selector = ",".join(f"{key}={value}" for key, value in one.selector.items())
        nodes.append(f"nodeSelector {selector}" if selector else source.nodes_at(one.place) or "all nodes")
    labels = " ".join(f"--node-label={label}" for label in needed(other))
    way = f"import it with {labels}, and make" if labels else "make a configuration of each, and"
    what = f"for {nodes[0]}, and this is for {nodes[1]}: {way} {_IN_PROFILES}"
    return f"line {first.place.line} has a resource of this name, too, " + (
        _BY_KIND_OF_NODE if nodes[0] == nodes[1] else what
    )


def _problems(one: ImportedResource, driver: Found | None) -> list[str]:
    try:
        (entry,) = from_json({"resources": [one.plain()]}, "").entries
        problems = completed_entry(entry, driver).problems if driver is not None else ()
    except InvalidConfiguration as error:
        problems = tuple(error.problems)
    return [str(one).partition("resources[0].")[2] or str(one) for one in problems]


def _named(plugin: str, importers: dict[str, Importer]) -> Importer:
    if plugin in importers:
        return importers[plugin]
    words = {plugin.lower(), *re.findall("[a-z0-9]+", plugin.lower())}
    example = next((example for example, theirs in _EXAMPLES.items() if words & theirs), "")
    other = next((name for name, theirs in _OTHER_NAMES.items() if name in importers and words & theirs), "")
    if other and not example:
        return importers[other]
    known = ", ".join(importers) or "nothing, because no installed package can import anything"
    others = f"{_HOW_TO} has examples of others, and {_MATCH} says how to offer any device node"
    take = f"take examples/{example}.yaml, which {_HOW_TO} explains" if example else others
    # nearly all names end alike, which makes no two plugins alike
    alike = [name for name in importers if did_you_mean(_ENDING.sub("", plugin), [_ENDING.sub("", name)])]
    hint = "" if example else did_you_mean(plugin, alike)
    instead = f"{hint}; {take}" if hint else take
    raise ConfigurationError(f"PLUGIN: found {plugin!r}, expected {known}; {instead}")


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        if force and path.is_file():  # a gateway may serve it, and half of it may be valid
            whole, mode = path.resolve(), path.stat().st_mode
            try:
                write(whole, text.encode())
                whole.chmod(stat.S_IMODE(mode))
            except OSError as error:
                if error.errno not in _ONLY_ITSELF:
                    raise
                whole.write_text(text, encoding="utf-8")
            return
        with path.open("w" if force else "x", encoding="utf-8") as stream:
            try:
                stream.write(text)
                stream.flush()
            except OSError:
                if path.is_file():
                    path.resolve().unlink()
                raise
    except FileExistsError as error:
        told = f"--output-file: {path} exists, expected a new file; --force overwrites it"
        raise ConfigurationError(told) from error
    except OSError as error:
        raise GatewayError(f"{path} can't be written: {error.strerror}") from error


def _tell(imported: Imported, text: str, output: str, *, written: bool) -> None:
    if output == "json":
        not_kept = [{**(parts := asdict(one)).pop("place"), **parts} for one in imported.not_kept]
        warnings = [
            {"resource": one.name, "warnings": list(one.warnings)} for one in imported.resources if one.warnings
        ]
        names = [one.name for one in imported.resources]
        print_json({"configuration": text, "resources": names, "not_kept": not_kept, "warnings": warnings})
        return
    if not written:
        click.echo(text, nl=False)
    for one in imported.not_kept:
        click.secho(f"not kept: {one}", fg="yellow", err=True)
    for warning in dict.fromkeys(warning for one in imported.resources for warning in one.warnings):
        about = ", ".join(one.name for one in imported.resources if warning in one.warnings)
        click.secho(printable(f"warning: {about}: {warning}"), fg="yellow", err=True)
