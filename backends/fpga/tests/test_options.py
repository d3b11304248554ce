import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from dpgateway_fpga import Bitstream, Board, FpgaManager, Simulated
from dpgateway_fpga.command_line import main

from dpgateway import Device

FFT = Bitstream(Path("/fft.bin"), "fft")


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../a", "x" * 64, "a b", "a\n"])
def test_a_board_id_can_name_a_file(name):
    with pytest.raises(ValueError, match=r"^id: expected at most 63"):
        Board(name)


def test_a_board_is_a_sound_device():
    with pytest.raises(ValueError, match=r"^id: .*how shares are named"):
        Board("a::1")
    with pytest.raises(ValueError, match=r"^numa: expected 0 or more, found -1"):
        Board("a", numa=-1)
    with pytest.raises(ValueError, match=r"^nodes: .*expected an absolute path, found 'dev/fpga0'"):
        Board("a", nodes=("dev/fpga0",))


@pytest.mark.parametrize("board", [Board("a", numa=0), Board("x" * 63), Board("0a.B_c:d-")])
def test_what_is_just_allowed(board):
    numa_nodes = () if board.numa is None else (board.numa,)
    assert board.device() == Device(board.id, numa_nodes=numa_nodes, hardware=(f"fpga {board.id}",))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wait": timedelta()}, "^wait: expected more than 0s, found 0s"),
        ({"state_dir": Path("state")}, "^state_dir: expected an absolute path, found 'state'"),
        ({"boards": (Board("a"), Board("b"), Board("a"))}, "^boards: expected each id once, found a twice"),
        ({"boards": (Board("a", ("/dev/x",)), Board("b", ("/dev/x",)))}, "expected each node once, found /dev/x twice"),
        ({"boards": (Board("a", address="b"), Board("b"))}, "^boards: expected each place once, found b twice"),
        ({"programmer": "command"}, "^command: expected preset, or argv, because the programmer is command$"),
        ({"programmer": "overlay"}, "^overlay: expected file, because the programmer is overlay$"),
        ({"functions": (Bitstream(Path("/a.bin"), "crypto-v3"),)}, "^functions: .* found crypto-v3 twice$"),
        ({"function": "fft"}, "^function: expected one of crypto-v3, found 'fft'$"),
        ({"functions": (FFT,), "function": "ftf"}, "^function: expected one of crypto-v3, fft, found 'ftf'$"),
        ({"patience": timedelta()}, "^patience: expected more than 0s, found 0s$"),
        ({"retry_first": timedelta()}, "^retry_first: "),
        ({"retry_limit": timedelta(seconds=1)}, "^retry_first: .* no more than retry_limit"),
    ],
)
def test_boards_and_pauses_are_checked(options, change, message):
    with pytest.raises(ValueError, match=message):
        replace(options, **change)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bitstream(Path("a.bin"), "a"), "^path: expected an absolute path, found 'a.bin'"),
        (lambda: Bitstream(Path("/a.bin"), ""), "^id: "),
        (lambda: Bitstream(Path("/a.bin"), "a", sha256="AB" * 32), "^sha256: expected 64 lower-case"),
        (lambda: Bitstream(Path("/a.bin"), "a", max_mib=0), "^max_mib: expected 1 or more, found 0"),
        (lambda: Simulated(state_dir=Path("state")), "^state_dir: "),
        (lambda: Simulated(fail_first=-1), "^fail_first: expected 0 or more, found -1"),
        (lambda: Simulated(duration=timedelta(seconds=-1)), "^duration: "),
    ],
)
def test_parts_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_boards_belong_to_one_pool(options):
    nodes = ["/dev/fpga-a", "/dev/fpga-a-dma", "/dev/fpga-b"]
    boards = [f"board fpga-{letter}" for letter in "abc"]
    assert options.claims() == [*boards, *(f"node {node}" for node in nodes)]


def test_warns_of_different_state_dirs(options):
    options = replace(options, boards=(Board("a"),))
    same, other = replace(options), replace(options, state_dir=Path("/elsewhere"))
    (warning,) = options.warnings({"example.com/same": same, "example.com/fft": other})
    assert warning.startswith(f"state_dir: found {options.state_dir}, expected /elsewhere as example.com/fft has it")
    assert list(other.warnings({"example.com/aes": replace(options, boards=(Board("b"),))})) == []


def test_warns_of_absent_bitstreams(options):
    absent = Bitstream(Path("/nowhere/a.bin"), "a")
    options = replace(options, boards=(Board("a"),), bitstream=absent, functions=(replace(absent, id="b"),))
    assert list(replace(options, blank=absent).warnings({})) == [
        f"{key}: there is no /nowhere/a.bin on this node" for key in ("bitstream", "functions", "blank")
    ]


def test_warns_of_ineffective_options(options):
    real = replace(options, boards=(Board("a", nodes=("/dev/fpga0",)),), fpga_manager=FpgaManager(flags=1))
    assert list(real.warnings({})) == [
        "programmer: found simulated, which programs no board, because its boards are files",
        "fpga_manager: of no effect, because the programmer is simulated",
    ]
    assert list(replace(real, programmer="fpga-manager").warnings({})) == []
    assert list(replace(options, boards=(Board("a"),)).warnings({})) == []


def test_two_names_are_one_board(options):
    """Or each would have a journal, a lock and a pool of its own."""
    here, there = Board("mine", address="0000:3b:00.0", port=1), Board("0000:3b:00.0-p1")
    assert here.device().hardware == there.device().hardware == ("fpga 0000:3b:00.0-p1",)
    assert set(replace(options, boards=(here,)).claims()) & set(replace(options, boards=(there,)).claims())
    assert Board("0000:3b:00.0-p0", address="0000:3b:00.0").device().hardware == ("fpga 0000:3b:00.0",)
    with pytest.raises(ValueError, match=r"^boards: expected each place once, found 0000:3b:00\.0-p1 twice"):
        replace(options, boards=(here, there))
    with pytest.raises(ValueError, match=r"^address: expected a name on a bus, without a slash, found '\.\./x'"):
        Board("a", address="../x")


@pytest.mark.parametrize(
    ("programmer", "glob", "board", "same"),
    [
        ("fpga-manager", "f8*", Board("mine", address="f8007000.devcfg"), True),
        ("fpga-manager", "g*", Board("mine", address="f8007000.devcfg"), False),
        ("fpga-manager", "pcap", Board("pcap-parts"), False),
        ("dfl", "0000:3b:00.0", Board("mine", address="0000:3b:00.0", port=1), True),
        ("dfl", "0000:3b:00.?", Board("mine", address="0000:3b:00.0"), True),
        ("dfl", "0000:3b:*", Board("mine", address="0000:3b:00.0", port=1), True),
        ("dfl", "0000:3b:*", Board("mine", address="0000:af:00.0"), False),
    ],
)
def test_found_boards_need_a_pool(tmp_path, programmer, glob, board, same):
    """Or two containers would get it."""
    bitstream = {"path": "/x", "id": "x"}
    lists = {"boards": [{"id": board.id, "address": board.place, "port": board.port}]}
    for options in ((lists, {"discover": [glob]}), ({"discover": [glob]}, lists)):
        common = {"programmer": programmer, "bitstream": bitstream, "sysfs": str(tmp_path)}
        for pool in (None, "boards"):
            resources = [
                {"name": f"example.com/f{number}", "driver": "fpga", "pool": pool, "options": common | one}
                for number, one in enumerate(options)
            ]
            (tmp_path / "config.yaml").write_text(json.dumps({"resources": resources}))
            done = CliRunner().invoke(main, ["list", "--config", str(tmp_path / "config.yaml")])
            wrong = same and pool is None
            assert (done.exit_code, "claims too, as " in done.stderr) == ((2, True) if wrong else (0, False))
