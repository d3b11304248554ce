"""The real code makes and removes directories of a file system that behaves like the configfs of vendors' kernels."""

import os
from functools import partial

import pytest
from dpgateway_fpga import Bitstream, Overlay
from dpgateway_fpga.programmers import BoardState, Failed, verify
from dpgateway_fpga.programmers.overlay import OverlayProgrammer

from backends.fpga.tests.kernel.overlays import Overlays, overlay
from dpgateway import DriverError
from tests.support.fuse import Text


@pytest.fixture
def overlays(kernel, firmware):
    found = Overlays(kernel.manager("f8007000.devcfg"), firmware)
    kernel.host.make("overlays", found)
    return found


@pytest.fixture
def file(tmp_path):
    (tmp_path / "aes.dtbo").write_bytes(overlay(("target-path", b"/fpga-region\0"), ("firmware-name", b"any.bin\0")))
    return tmp_path / "aes.dtbo"


@pytest.fixture
def programmer(real, file, firmware, tmp_path):
    return OverlayProgrammer(
        real(
            programmer="overlay",
            overlay=Overlay(Bitstream(file, "aes"), configfs=tmp_path / "host/overlays", firmware=firmware),
        )
    )


@pytest.fixture
def board(real):
    return real().boards[0]


def test_overlay_loads_the_image(overlays, programmer, board, image, firmware):
    assert programmer.read(board) == BoardState("unknown")
    programmer.program(board, image, print)
    assert overlays.manager.loaded == [(f"dpgateway/{image.sha256}-fpga-a.bin", image.content, "0")]
    assert verify(programmer, board, image).operating
    assert list(overlays) == ["dpgateway-f8007000.devcfg"]
    assert os.listdir(firmware / "dpgateway") == []  # noqa: PTH208
    programmer.program(board, image, print)
    assert (len(overlays.manager.loaded), list(overlays)) == (2, ["dpgateway-f8007000.devcfg"])


def test_a_load_that_fails_leaves_no_overlay(overlays, programmer, board, image):
    overlays.manager.fail = "write init"
    with pytest.raises(Failed, match=r"\(EIO\); state: write init error; status: reconfig CRC error, .*"):
        programmer.program(board, image, print)
    assert list(overlays) == []
    assert programmer.read(board).fault


@pytest.mark.parametrize("status", ["unapplied", "applied"])
def test_replaces_an_old_overlay(overlays, programmer, board, image, status):
    overlays.mkdir("dpgateway-f8007000.devcfg")
    overlays["dpgateway-f8007000.devcfg"]["path"].status = status
    programmer.program(board, image, print)
    assert (len(overlays.manager.loaded), overlays.removed) == (1, ["dpgateway-f8007000.devcfg"])
    assert verify(programmer, board, image).operating


def test_somebody_elses_overlay_is_left_alone(overlays, programmer, board, image):
    overlays.mkdir("theirs")
    overlays["theirs"]["path"].status = "applied"
    told = r"^write .*/dpgateway-f8007000.devcfg/path: Invalid argument \(EINVAL\); .*; the kernel has theirs already"
    with pytest.raises(Failed, match=told):
        programmer.program(board, image, print)
    assert list(overlays) == ["theirs"]


def test_failed_overlay_is_removed(overlays, programmer, board, image):
    overlays.manager.fail, overlays.sticky = "write", True
    with pytest.raises(Failed, match=r"\(EIO\); state: write error"):
        programmer.program(board, image, print)
    assert (list(overlays), programmer.read(board).operating) == ([], False)
    overlays.manager.fail = ""
    programmer.program(board, image, print)
    assert verify(programmer, board, image).operating


def test_stuck_overlay_stops_loads(overlays, programmer, board, image):
    programmer.program(board, image, print)
    overlays.stuck = True
    with pytest.raises(Failed, match=r"^rmdir .*/dpgateway-f8007000.devcfg: .*\(EBUSY\)") as failed:
        programmer.program(board, image, print)
    assert failed.value.again
    assert len(overlays.manager.loaded) == 1


def test_removed_overlay_is_not_operating(overlays, programmer, board, image):
    programmer.program(board, image, print)
    programmer.reset(board)
    assert (list(overlays), programmer.read(board)) == ([], BoardState("operating without its overlay"))
    programmer.reset(board)
    with pytest.raises(
        Failed, match=r"^expected the board to be operating now, found the state 'operating without its overlay'$"
    ):
        verify(programmer, board, image)


def test_another_overlay_is_not_operating(overlays, programmer, board, image, file):
    """The same image with other properties for the kernel's drivers: they come with the next start only."""
    programmer.program(board, image, print)
    file.write_bytes(overlay(("target-path", b"/fpga-region\0"), ("firmware-name", b"any.bin\0"), ("fixed", b"")))
    assert programmer.read(board) == BoardState("operating without its overlay")
    programmer.program(board, image, print)
    assert verify(programmer, board, image).operating
    file.unlink()
    assert programmer.read(board).operating, "nobody can tell"


def test_refuses_writable_overlay(overlays, programmer, board, image, file):
    programmer.program(board, image, print)
    file.chmod(0o666)
    with pytest.raises(DriverError, match=r"^bitstream 'aes' .* is refused: .*only its owner can write"):
        programmer.program(board, image, print)
    assert (len(overlays.manager.loaded), list(overlays)) == (1, ["dpgateway-f8007000.devcfg"])


def test_endless_status_is_disbelieved(overlays, programmer, board, image, kernel):
    programmer.program(board, image, print)
    kernel.host.make("overlays/dpgateway-f8007000.devcfg/status", Text("applied" + 100_000 * "\n"))
    assert not programmer.read(board).operating


def test_a_kernel_without_overlays_is_named(kernel, programmer, board, image, tmp_path):
    """Nothing is touched then."""
    kernel.manager("f8007000.devcfg")
    for call in (programmer.expected, partial(programmer.program, progress=print)):
        with pytest.raises(DriverError, match=rf"^{tmp_path}/host/overlays isn't there: .* use another programmer$"):
            call(board, image)
    assert "isn't there" in str(programmer.read(board).fault)
