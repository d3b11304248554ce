"""The command line: one module per command, and shared modules.

group           the group of all commands, which imports a command when it is called
options         options shared by several commands, and the resulting settings
standard        a one-line error if standard output can't be written
reading         this node's configuration, with its drivers loaded
output          tables, JSON, lines in colour
run             ``run``
agent           from the configuration to the running gateway
demo            ``demo``
demo_stage      the gateway and the kubelet of the demo
check           ``check``
unfit           devices that no container could get
dra_fit         what doesn't fit DRA
pools           resources that offer the same hardware
compare         ``check --against-running``: the effects of a reload
devices         ``devices``
ask_drivers     drivers asked without a gateway
status          ``status``
plain_status    ``status`` in as little memory as possible
control_client  the client of the gateway's control socket
picture         a status, drawn as tables
preflight       ``preflight``
facts           the facts about a node, for ``preflight``
site            the place where a gateway would run, for ``preflight``
front_facts     the facts about a change of the front, for ``preflight``
rehearsal       the simulated upgrade of a kubelet
drivers         ``drivers``
import_         ``import``
config          ``config``
new_driver      ``new-driver``
packages        the API for the commands of drivers' packages
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpgateway.cli.group import main

# gRPC's C core reads this variable when it is imported. Its lines on standard error would break JSON logs.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

__all__ = ["main"]


def __getattr__(name: str) -> object:
    """The group of all commands, imported at its first use: a plain `dpgateway status` needs none of it."""
    if name == "main":
        from dpgateway.cli.group import main  # noqa: PLC0415

        return main
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
