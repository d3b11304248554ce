from pathlib import Path

from dpgateway_simulator.wire.sockets import address, bound, connected


def test_long_paths_go_through_their_directory(tmp_path: Path) -> None:
    long = tmp_path / ("d" * 120) / "x.sock"
    long.parent.mkdir()
    with address(long) as short:
        assert len(short) < 107
    with bound(long) as server:
        server.listen()
        connected(long, "x.sock").close()
    with address(tmp_path / "y") as short:
        assert short == str(tmp_path / "y")
