"""A simulated API server, as the tests of DRA have it."""

from tests.dra.conftest import late_server, server, simulated

__all__ = ["late_server", "server", "simulated"]
