from dataclasses import replace
from datetime import timedelta

import pytest
from dpgateway_fpga import Bitstream, Board, FpgaDriver, FpgaOptions, Simulated

from dpgateway.testing import Recorder

CONTENT = b"a bitstream"


@pytest.fixture
def options(tmp_path):
    """Three boards that are programmed at once and without fault."""
    file = tmp_path / "image.bin"
    file.write_bytes(CONTENT)
    file.chmod(0o644)
    return FpgaOptions(
        boards=(
            Board("fpga-a", nodes=("/dev/fpga-a", "/dev/fpga-a-dma"), numa=1),
            Board("fpga-b", nodes=("/dev/fpga-b",)),
            Board("fpga-c"),
        ),
        bitstream=Bitstream(file, id="crypto-v3"),
        state_dir=tmp_path / "journal",
        simulated=Simulated(state_dir=tmp_path / "state", duration=timedelta()),
        retry_first=timedelta(hours=1),
        retry_limit=timedelta(hours=1),
    )


@pytest.fixture
def simulate(options):
    """The options, with other ones for the simulated programmer, and others."""

    def make(*, retry=None, **simulated):
        changed = replace(options, simulated=replace(options.simulated, **simulated))
        return replace(changed, retry_first=retry, retry_limit=retry) if retry else changed

    return make


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def start(recorder):
    """Makes drivers, which are closed when the test is over."""
    drivers = []

    def make(options, kind=FpgaDriver):
        drivers.append(kind(options, recorder.context()))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()
