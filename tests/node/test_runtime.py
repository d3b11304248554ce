"""The container runtime is asked who it is, and what follows from that for CDI is known as far as it can be."""

from pathlib import Path

import grpc
import grpc.aio
import pytest

from dpgateway.node.runtime import CdiSupport, Runtime, configured, knows_cdi
from dpgateway_simulator.wire.runtime import v1
from tests.node.cri import in_time

ETC_CDI, RUN_CDI = Path("/etc/cdi"), Path("/var/run/cdi")


@pytest.fixture
async def serve():
    """A runtime that says who it is, and counts how often it is asked."""
    servers = []

    async def serve(socket, raw, raw_status=None, **info):
        asked: list[str | bool] = []

        async def status(request, context):
            asked.append(v1.StatusRequest().parse(request).verbose)
            if callable(raw_status):
                return await raw_status(context)
            return raw_status or bytes(v1.StatusResponse(info=info))

        async def version(request, context):
            asked.append(v1.VersionRequest().parse(request).version)
            return raw

        answers = {"Version": version, "Status": status}
        rows = {name: grpc.unary_unary_rpc_method_handler(answer) for name, answer in answers.items()}
        servers.append(server := grpc.aio.server())
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", rows),))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        return asked

    yield serve
    for server in servers:
        await server.stop(None)


@pytest.fixture
def said(caplog):
    """What the runtime at a socket says of CDI; ``asked`` has what it was asked for that."""

    async def said(socket, asked):
        async def ask():
            asked.clear()
            return await Runtime(socket).cdi()

        return await in_time(ask, caplog)

    return said


def runtime(name, version):
    return bytes(v1.VersionResponse(version="0.1.0", runtime_name=name, runtime_version=version))


@pytest.mark.parametrize(
    ("name", "version", "knows", "enabled", "disabled"),
    [
        ("containerd", "1.6.20~ds1", False, False, False),
        ("containerd", "v1.7.1", False, False, False),
        ("containerd", "v1.7.27", None, True, False),  # enable_cdi is false by default
        ("containerd", "v2.0.0", True, True, False),
        ("containerd", "2.10.1", True, True, False),
        ("containerd", "2.1", True, True, False),
        ("cri-o", "1.22.1", False, False, False),
        ("cri-o", "1.27.0", None, True, False),
        ("cri-o", "1.34.0", True, True, False),
        ("docker", "29.0.0", None, None, None),
        ("containerd", "unknown", None, None, None),
    ],
)
def test_which_runtime_knows_cdi(name, version, knows, enabled, disabled):
    assert [knows_cdi(name, version, said) for said in (None, True, False)] == [knows, enabled, disabled]


@pytest.mark.parametrize(
    ("config", "enabled"),
    [
        ('{"enableCDI": true, "cdiSpecDirs": ["/etc/cdi"]}', True),
        ('{"enableCDI": false}', False),
        ('{"enableCDI": null}', None),
        ('{"enableCDI": "true"}', None),
        ('{"sandboxImage": "pause"}', None),  # containerd 1.6
        ("[]", None),
        ("", None),
        ("[crio]", None),
        ("[" * 100_000, None),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_runtime_says_whether_it_is_told_to_do_cdi(serve, said, short_path, config, enabled):
    assert configured({"config": config})[0] is enabled
    asked = await serve(short_path / "a.sock", runtime("containerd", "v1.7.27"), config=config, golang="go1.23")
    assert (await said(short_path / "a.sock", asked)).by_name is enabled
    assert asked == ["v1", True]


@pytest.mark.parametrize(
    ("config", "unread"),
    [
        ('{"cdiSpecDirs": ["/etc/cdi", "/run/cdi/"]}', ()),  # a host's /var/run is a link to /run
        ('{"cdiSpecDirs": ["/etc/cdi"]}', (RUN_CDI,)),
        ('{"cdiSpecDirs": ["/opt/cdi"]}', (ETC_CDI, RUN_CDI)),
        ('{"cdiSpecDirs": []}', ()),
        ('{"cdiSpecDirs": [1]}', ()),
        ('{"cdiSpecDirs": null}', ()),
        ("{}", ()),
    ],
)
async def test_a_runtime_says_where_it_reads_specs(serve, said, short_path, config, unread):
    asked = await serve(short_path / "a.sock", runtime("containerd", "v2.4.2"), config=config)
    support = await said(short_path / "a.sock", asked)
    assert support.unread(ETC_CDI, RUN_CDI) == unread
    assert [support.of(one) for one in (ETC_CDI, RUN_CDI)] == [one not in unread for one in (ETC_CDI, RUN_CDI)]
    assert CdiSupport(None, support.spec_dirs).of(ETC_CDI, RUN_CDI) is (False if unread else None)


async def test_it_is_asked_once_for_each_of_its_lives(serve, short_path):
    socket = short_path / "a.sock"
    found = Runtime(socket)
    assert (await found.cdi()).by_name is None
    asked = await serve(socket, runtime("containerd", "1.6.20"))
    assert [(await found.cdi()).by_name for _ in range(3)] == [False] * 3
    assert asked == ["v1", True]
    socket.unlink()
    await serve(socket, runtime("containerd", "v2.1.0"))
    assert (await found.cdi()).by_name is True


async def test_a_status_that_is_not_answered_is_asked_for_again(serve, short_path):
    """As of a runtime that is busy when a node starts: whether it gives devices by name would stay unknown."""
    busy = [grpc.StatusCode.UNAVAILABLE]

    async def status(context):
        if busy:
            await context.abort(busy.pop(), "not now")
        return bytes(v1.StatusResponse(info={"config": '{"enableCDI": true}'}))

    asked = await serve(short_path / "cri.sock", runtime("containerd", "v1.7.27"), status)
    one = Runtime(short_path / "cri.sock")
    assert (await one.cdi()).by_name is None
    assert (await one.cdi()).by_name is True
    assert (await one.cdi()).by_name is True
    assert asked == ["v1", True] * 2


@pytest.mark.parametrize("raw", [b"\xff", runtime("", "")])
async def test_one_that_does_not_say_who_it_is_may_know_anything(serve, short_path, raw):
    asked = await serve(short_path / "a.sock", raw)
    found = Runtime(short_path / "a.sock")
    assert [(await found.cdi()).by_name for _ in range(2)] == [None, None]
    assert asked.count("v1") == 2


async def test_the_version_decides_without_a_configuration(serve, said, short_path):
    asked = await serve(short_path / "a.sock", runtime("containerd", "v2.1.0"), raw_status=b"\xff")
    assert (await said(short_path / "a.sock", asked)).by_name is True


async def test_what_is_no_runtime_may_know_anything(short_path):
    (short_path / "a.sock").touch()
    assert (await Runtime(short_path / "a.sock").cdi()).by_name is None


async def test_the_only_socket_in_a_usual_place(serve, short_path):
    usual = short_path / "a.sock", short_path / "b.sock"
    found = Runtime(None, usual)
    await serve(usual[1], runtime("cri-o", "1.34.0"))
    assert (await found.cdi()).by_name is True
    usual[0].touch()  # nobody says which one the kubelet uses
    assert (await found.cdi()).by_name is None
