import json

import pytest
from dpgateway_simulated import SimulatedDriver, SimulatedOptions

from dpgateway.testing import Recorder


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def start(recorder):
    """Makes drivers on the node ``node-a``, which are closed when the test is over."""
    drivers = []

    def make(**options):
        drivers.append(SimulatedDriver(SimulatedOptions(**options), recorder.context()))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


@pytest.fixture
def control(tmp_path):
    """A control file that isn't there yet, and how to replace it as a careful user does."""

    (tmp_path / "control").mkdir()

    class Control:
        path = tmp_path / "control" / "faults.json"
        elsewhere = tmp_path / "elsewhere"

        def write(self, *faults):
            new = self.elsewhere
            new.write_text(json.dumps({"faults": faults}))
            new.replace(self.path)

    return Control()
