"""The command line: ``dpgateway run | demo | check | devices | drivers | simulate``."""

import os

# gRPC's C core reads this when it is imported; its own lines on standard error would break JSON logs.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from dpgateway.cli.group import main

__all__ = ["main"]
