"""The command line: one module for each command, and what they share.

group           the group of all commands, which imports a command when it is called
options         the options that several commands have, and the configuration that they name
standard        ends a command in one line if standard output can't be written
reading         this node's configuration, for commands that ask its drivers
output          tables, JSON, lines in colour
run             ``run``
agent           from the configuration to the running gateway
demo            ``demo``
demo_stage      runs the gateway and the kubelet of the demo
check           ``check``
unfit           finds devices that no container could get
pools           which resources offer the same hardware
compare         ``check --against-running``: what a reload would do
devices         ``devices``
ask_drivers     asks drivers without a gateway
status          ``status``
control_client  asks the running gateway
picture         draws a status
preflight       ``preflight``
facts           asks the node what ``preflight`` must know
rehearsal       plays the upgrade of a kubelet
drivers         ``drivers``
import_         ``import``
config          ``config``
new_driver      ``new-driver``
packages        what the commands of drivers' packages need
"""

import os

# gRPC's C core reads this variable when it is imported. Its lines on standard error would break JSON logs.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from dpgateway.cli.group import main

__all__ = ["main"]
