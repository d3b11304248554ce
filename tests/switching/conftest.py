"""A simulated API server, as the tests of DRA have it."""

from tests.dra.conftest import server, simulated

__all__ = ["server", "simulated"]
