"""The group of all commands. It imports a command's module when the command is called: `run` stays small."""

from __future__ import annotations

import gc
import importlib
from types import ModuleType
from typing import Any

import click
from click.shell_completion import CompletionItem

from dpgateway.cli.standard import told_in_one_line
from dpgateway.errors import ConfigurationError, GatewayError

COMMANDS = {
    "run": ("dpgateway.cli.run:run", "Serve the configured resources to the node's kubelet."),
    "demo": ("dpgateway.cli.demo:demo", "Show the gateway with simulated devices and a simulated kubelet."),
    "check": ("dpgateway.cli.check:check", "Check the configuration, and name everything that is wrong with it."),
    "devices": ("dpgateway.cli.devices:devices", "List the devices that each resource would offer now."),
    "status": ("dpgateway.cli.status:status", "Show the status of the running gateway."),
    "preflight": ("dpgateway.cli.preflight:preflight", "Predict the effects of an upgrade of this node's kubelet."),
    "drivers": ("dpgateway.cli.drivers:drivers", "List the installed drivers and their options."),
    "import": ("dpgateway.cli.import_:import_", "Make a configuration of another device plugin's."),
    "config": ("dpgateway.cli.config:config", "Print an example of a configuration."),
    "new-driver": ("dpgateway.cli.new_driver:new_driver", "Write the beginning of a driver package."),
    "simulate": ("dpgateway_simulator.prompt.command:simulate", "Run a simulated kubelet, of any version."),
}
"""By name: the command's module and function, and its line in the group's help, which doesn't import the command."""

SIMULATOR_NEEDS = frozenset({"betterproto", "dpgateway_simulator", "grpclib", "h2", "prompt_toolkit"})

EPILOG = """Every option can also be given as an environment variable: --log-level as DPGATEWAY_LOG_LEVEL, and so on.
An option wins over its environment variable, and that wins over the configuration.

Exit codes: 0 done, or ended by SIGTERM or SIGINT; 1 the work failed; 2 the configuration or the usage is wrong."""


EXTRA = "Got unexpected extra argument"
"""The beginning of click's message about a superfluous argument."""


class Telling(click.Group):
    """Converts our errors to messages and exit codes."""

    def main(self, *args: Any, **keys: Any) -> Any:  # noqa: ANN401  click's own
        with told_in_one_line():
            return super().main(*args, **keys)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  click's own
        try:
            return super().invoke(ctx)
        except ConfigurationError as error:
            click.echo(error, err=True)
            ctx.exit(2)
        except GatewayError as error:
            raise click.ClickException(str(error)) from error
        except click.UsageError as error:
            # `dpgateway check config.yaml` lacks --config, so commands with that option get a hint.
            options = error.ctx.command.params if error.ctx is not None else ()
            if not error.message.startswith(EXTRA) or all(option.name != "config" for option in options):
                raise
            raise click.UsageError(f"{error.message}; --config names the configuration", error.ctx) from error


class LazyGroup(Telling):
    """Imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        try:
            command: click.Command = getattr(imported(module), attribute)
        except ModuleNotFoundError as error:
            raise unavailable(cmd_name, module, error) from error
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:  # click suggests imported commands only
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes without importing a command, which may take a second, or lack its packages."""
        found = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def imported(module: str) -> ModuleType:
    """Imports a module without garbage collections, and excludes it from later ones: modules live to the end."""
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()


def unavailable(name: str, module: str, error: ModuleNotFoundError) -> Exception:
    """The error of a command, or an option, with a missing package."""
    missing = str(error.name)
    if missing == module:
        return click.ClickException(f"{name} isn't part of this installation")
    if missing.partition(".")[0] in SIMULATOR_NEEDS:
        what = f"{name} needs the simulator ({missing} isn't installed): pip install 'dpgateway[simulator]'"
        return click.ClickException(what)
    return error


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(None, "--version", package_name="dpgateway", message="dpgateway %(version)s")
def main() -> None:
    """One device plugin for a Kubernetes node: many resources, every kubelet's API, drivers as Python packages.

    A node runs `dpgateway run`. The other commands help before and after: `check` a configuration, see what it would
    offer with `devices`, list the installed `drivers`, and rehearse with a simulated kubelet.
    """
