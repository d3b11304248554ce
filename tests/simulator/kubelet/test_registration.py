"""Register: what is refused and in which words, and what happens before it answers."""

import asyncio

import grpc
import pytest

from dpgateway_simulator import ManualClock, behaviour
from dpgateway_simulator.kubelet.errors import RefusedError
from dpgateway_simulator.kubelet.registration import check, extended, quoted
from dpgateway_simulator.wire.sockets import bound

X = "example.com/x"


async def refusal(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


UNKNOWN, UNIMPLEMENTED = grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED
WRONG = 'requested API version "v0" is not supported by kubelet. Supported version'


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.8", "unsupported API version by the Kubelet registry"),
        ("1.9", f'{WRONG} is "v1alpha2"'),
        ("1.10", f'{WRONG}s are ["v1beta1"]'),
        ("1.11", f'{WRONG}s are ["v1beta1"]'),
        ("1.12", f'{WRONG} is ["v1beta1"]'),
        ("1.37", f'{WRONG} is ["v1beta1"]'),
    ],
)
async def test_a_wrong_version(rig, version, text):
    plugin = rig.plugin(await rig.kubelet(version))
    assert await refusal(plugin.register(version="v0")) == (UNKNOWN, text)


async def test_a_bad_name_after_a_good_version(rig, era):
    plugin = rig.plugin(await rig.kubelet(era))
    text = "the ResourceName is invalid" if era == "1.8" else 'the ResourceName "nodomain" is invalid'
    assert await refusal(plugin.register(resource="nodomain")) == (UNKNOWN, text)


async def test_the_other_service_is_unknown(rig, era):
    kubelet = await rig.kubelet(era)
    plugin = rig.plugin(kubelet)
    other = "v1alpha2" if kubelet.behaviour.api == "v1beta1" else "v1beta1"
    service = "deviceplugin" if other == "v1alpha2" else "v1beta1"
    assert await refusal(plugin.register(api=other)) == (UNIMPLEMENTED, f"unknown service {service}.Registration")


async def test_an_unknown_method_is_named(rig):
    kubelet = await rig.kubelet("1.37")
    async with grpc.aio.insecure_channel(f"unix:{kubelet.directory}/kubelet.sock") as channel:
        code, text = await refusal(channel.unary_unary("/v1beta1.Registration/Nope")(b""))
    assert (code, text) == (UNIMPLEMENTED, "unknown method Nope for service v1beta1.Registration")


async def test_a_plugin_that_is_not_served(rig, era):
    """From 1.25 on Register waits 10 seconds for it; before, it is accepted and nothing comes of it."""
    clock = ManualClock()
    kubelet = await rig.kubelet(era, clock=clock)
    registering = asyncio.create_task(rig.plugin(kubelet).register())
    if kubelet.behaviour.blocking_dial:
        await kubelet.wait_for_event("dialling")
        clock.advance(10)
    if kubelet.behaviour.synchronous:
        text = "failed to dial device plugin: context deadline exceeded"
        assert await refusal(registering) == (UNKNOWN, text)
    else:
        await registering
    await kubelet.wait_for(lambda: any(one.kind in {"stream ended", "registration failed"} for one in kubelet.events))
    assert await kubelet.wait_for(lambda: kubelet.counts(X) == ((0, 0) if era == "1.9" else (None, None)))


async def test_a_plugin_that_is_served_while_the_kubelet_tries(rig):
    clock = ManualClock()
    kubelet = await rig.kubelet("1.37", clock=clock)
    plugin = rig.plugin(kubelet)
    registering = asyncio.create_task(plugin.register())
    await kubelet.wait_for_event("dialling")
    await plugin.serve()
    clock.advance(1)
    await registering
    await kubelet.wait_for(lambda: kubelet.counts(X) == (2, 2))


async def test_a_plugin_that_accepts_but_says_nothing_is_not_connected(rig):
    clock = ManualClock()
    kubelet = await rig.kubelet("1.37", clock=clock)
    with bound(kubelet.directory / "x.sock") as silent:
        silent.listen()
        registering = asyncio.create_task(rig.plugin(kubelet).register())
        await kubelet.wait_for_event("dialling")
        clock.advance(10)
        assert (await refusal(registering))[1] == "failed to dial device plugin: context deadline exceeded"


async def test_options_that_fail(rig):
    kubelet = await rig.kubelet("1.25")
    plugin = await rig.plugin(kubelet).serve()

    async def fail(ids):
        raise RuntimeError("boom")

    plugin.hooks["GetDevicePluginOptions"] = fail
    code, text = await refusal(plugin.register())
    assert code is UNKNOWN
    assert text.startswith("failed to get device plugin options: rpc error: code = Unknown desc = ")


@pytest.mark.parametrize(("version", "pre_starts"), [("1.24", 0), ("1.25", 1)])
async def test_options_come_from_register_up_to_1_24(rig, version, pre_starts):
    kubelet = await rig.kubelet(version)
    plugin = rig.plugin(kubelet)
    plugin.options["pre_start_required"] = False
    await plugin.serve()
    since = len(kubelet.events)

    async def change(ids):
        plugin.options["pre_start_required"] = True

    plugin.hooks["GetDevicePluginOptions"] = change
    await plugin.register()
    await kubelet.wait_for_event("list received", since)
    await kubelet.admit("p1", {"c": {X: 1}})
    assert plugin.count("PreStartContainer") == pre_starts


@pytest.mark.parametrize(("version", "goes_on"), [("1.34", True), ("1.35", False)])
async def test_a_caller_that_gives_up_stops_the_kubelet_only_from_1_35(rig, version, goes_on):
    kubelet = await rig.kubelet(version)
    plugin = await rig.plugin(kubelet).serve()
    asked, answer = asyncio.Event(), asyncio.Event()

    async def wait(ids):
        asked.set()
        await answer.wait()

    plugin.hooks["GetDevicePluginOptions"] = wait
    registering = asyncio.create_task(plugin.register())
    await asked.wait()
    registering.cancel()
    await asyncio.wait({registering})
    if not goes_on:
        await kubelet.wait_for_event("register given up", resource=X)
    answer.set()
    if goes_on:
        await kubelet.wait_for(lambda: kubelet.counts(X) == (2, 2))
    assert kubelet.counts(X) == ((2, 2) if goes_on else (None, None))


@pytest.mark.parametrize(("version", "hands_on"), [("1.34", False), ("1.35", True), ("1.37", True)])
async def test_the_callers_deadline_is_handed_on_from_1_35(rig, version, hands_on):
    plugin = await rig.plugin(await rig.kubelet(version)).start()
    assert (plugin.seconds is not None) == hands_on
    assert not hands_on or plugin.seconds <= 20.5


async def test_a_name_too_long_for_the_real_directory_is_not_dialled(rig):
    clock = ManualClock()
    kubelet = await rig.kubelet("1.8", clock=clock)
    plugin = rig.plugin(kubelet, "x" * 76)
    await plugin.register()
    ended = await kubelet.wait_for_event("stream ended")
    assert ended.fields["reason"].endswith('connect: invalid argument"')


async def test_refusing_and_stalling_on_demand(rig):
    kubelet = await rig.kubelet("1.37")
    plugin = await rig.plugin(kubelet).serve()
    kubelet.misbehaviour.refuse_register("not today", "UNAVAILABLE", resource=X)
    assert await refusal(plugin.register()) == (grpc.StatusCode.UNAVAILABLE, "not today")
    kubelet.misbehaviour.behave()
    kubelet.misbehaviour.stall_register()
    since = len(kubelet.events)
    registering = asyncio.create_task(plugin.register())
    await kubelet.wait_for_event("register", since)
    assert kubelet.counts(X) == (None, None)
    kubelet.misbehaviour.behave()
    await registering
    await kubelet.wait_for(lambda: kubelet.counts(X) == (2, 2))


async def test_the_socket_may_be_there_before_anybody_listens(rig):
    clock = ManualClock()
    kubelet = await rig.kubelet("1.37", clock=clock)
    await kubelet.stop()
    kubelet.misbehaviour.late_listen = 2
    since = len(kubelet.events)
    starting = asyncio.create_task(kubelet.start())
    await kubelet.wait_for_event("socket created", since)
    assert (kubelet.directory / "kubelet.sock").is_socket()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_unix_connection(kubelet.directory / "kubelet.sock")
    clock.advance(2)
    await starting
    _, writer = await asyncio.open_unix_connection(kubelet.directory / "kubelet.sock")
    writer.close()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("example.com/x", True, True),
        ("nodomain", False, False),
        ("kubernetes.io/x", False, False),
        ("sub.kubernetes.io/x", False, False),
        ("Example.com/x", True, False),
        ("example.com/x/y", True, False),
        ("example.com/", True, False),
        ("example.com/-x", True, False),
        ("requests.example.com/x", True, False),
        ("example.com/" + "x" * 63, True, True),
        ("example.com/" + "x" * 64, True, False),
        ("e" * 244 + "/x", True, True),
        ("e" * 245 + "/x", True, False),
    ],
)
def test_extended_resource_names_became_stricter_with_1_10(name, old, new):
    assert extended(name, qualified=False) == old
    assert extended(name, qualified=True) == new


def test_the_version_is_checked_first():
    with pytest.raises(RefusedError, match="requested API version"):
        check(behaviour("1.37"), "v1", "nodomain")


def test_1_8_has_a_word_for_no_name():
    with pytest.raises(RefusedError, match=r"^invalid Empty ResourceName$"):
        check(behaviour("1.8"), "0.1", "")


@pytest.mark.parametrize(("text", "go"), [("a", '"a"'), ('a"b\\', '"a\\"b\\\\"'), ("a\n", '"a\\n"')])
def test_quoting_as_go_does(text, go):
    assert quoted(text) == go
