"""The command line: ``dpgateway run | demo | check | devices | status | drivers | import | config | new-driver |
simulate``."""

import os

# gRPC's C core reads this variable when it is imported. Its lines on standard error would break JSON logs.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from dpgateway.cli.group import main

__all__ = ["main"]
