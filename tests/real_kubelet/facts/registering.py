"""How a plugin comes to the kubelet, and what two of them for one resource do to each other."""

import asyncio
import contextlib

from tests.real_kubelet.facts.case import DASH, QUIET, Case, devices, until
from tests.real_kubelet.plugin import Plugin, dialect_of
from tests.scenarios.kubelet import RESOURCE

OTHER = "example.com/other"
VERSIONS = ("0.1", "v1alpha1", "v1alpha2", "v1beta1", "v1")


async def api(case: Case) -> str:
    """gRPC package and version that it accepts"""
    await case.kubelet.start()
    accepted = []
    for dialect in ("v1alpha2", "v1beta1"):
        for version in VERSIONS:
            plugin = await case.plugin(f"{dialect}-{version}.sock", dialect=dialect, register=False)
            if await case.register(plugin, version=version) == "accepted":
                accepted.append(f"{plugin.package}, {version}")
    return "; ".join(accepted)


async def other_package(case: Case) -> str:
    """Register in the other package"""
    await case.kubelet.start()
    other = "v1alpha2" if case.kubelet.minor >= 10 else "v1beta1"
    return await case.register(await case.plugin(dialect=other, register=False))


async def other_version(case: Case) -> str:
    """Register with the version `v0`"""
    await case.kubelet.start()
    return await case.register(await case.plugin(register=False), version="v0")


async def no_domain(case: Case) -> str:
    """Register a resource name without a domain"""
    await case.kubelet.start()
    return await case.register(await case.plugin(register=False), resource="thing")


async def nobody_serves(case: Case) -> str:
    """Register, while nobody serves the socket"""
    await case.kubelet.start()
    return await case.register(Plugin(dialect_of(case.release), RESOURCE, case.directory, "nobody.sock"))


async def nobody_served(case: Case) -> str:
    """Counts after that"""
    await case.kubelet.start()
    absent = Plugin(dialect_of(case.release), RESOURCE, case.directory, "nobody.sock")
    registering = asyncio.create_task(case.register(absent), name="Register")
    if case.kubelet.minor < 25:  # they answer at once
        await registering
    seen = await case.settled()
    registering.cancel()
    return seen


async def subdirectory(case: Case) -> str:
    """Register a socket in a sub-directory"""
    await case.kubelet.start()
    (case.directory / "folder").mkdir()
    plugin = await case.plugin("folder/plugin.sock", register=False)
    answer = await case.register(plugin)
    await plugin.wait_for("ListAndWatch")
    return answer


async def long_name(case: Case) -> str:
    """Register a socket whose path is longer than 107 bytes"""
    await case.kubelet.start()
    return await case.register(Plugin(dialect_of(case.release), RESOURCE, case.directory, "n" * 100))


async def two_resources(case: Case) -> str:
    """Counts of a second resource on the same socket"""
    plugin = await case.started()
    await plugin.register(resource=OTHER)
    await plugin.wait_for("ListAndWatch", 2)
    await case.kubelet.wait_for((2, 2), resource=OTHER)
    return await case.settled(OTHER)


async def two_resources_first(case: Case) -> str:
    """Counts of the first resource then"""
    plugin = await case.started()
    await plugin.register(resource=OTHER)
    await case.kubelet.wait_for((2, 2), resource=OTHER)
    return await case.settled()


async def options(case: Case) -> str:
    """Options that count, when the method's are others"""
    if case.kubelet.minor < 10:
        return DASH
    await case.kubelet.start()
    plugin = await case.plugin(pre_start=True, register=False)

    async def change(_ids: list[str]) -> None:
        plugin.options["pre_start_required"] = False

    plugin.hooks["GetDevicePluginOptions"] = change
    await plugin.register()
    await case.listed(plugin)
    await case.admit("p1")
    return "Register's" if plugin.of("PreStartContainer") else "the method's"


async def options_fail(case: Case) -> str:
    """Register, while GetDevicePluginOptions fails"""
    await case.kubelet.start()
    plugin = await case.plugin(register=False)
    plugin.hooks["GetDevicePluginOptions"] = fail
    return await case.register(plugin)


async def gives_up(case: Case) -> str:
    """Counts when Register's caller gives up meanwhile"""
    if case.kubelet.minor < 25:
        return DASH
    await case.kubelet.start()
    plugin = await case.plugin(register=False)
    answer, ended = asyncio.Event(), asyncio.Event()

    async def wait(_ids: list[str]) -> None:
        try:
            await answer.wait()
        finally:
            ended.set()

    plugin.hooks["GetDevicePluginOptions"] = wait
    registering = asyncio.create_task(plugin.register(), name="Register")
    await plugin.wait_for("GetDevicePluginOptions")
    registering.cancel()
    with contextlib.suppress(TimeoutError):
        # Kubelets from 1.35 on give up, too, soon or on a busy machine later.
        await asyncio.wait_for(ended.wait(), 5 * QUIET if case.kubelet.minor < 35 else 20)
    answer.set()
    return await case.settled()


async def fail(_ids: list[str]) -> None:
    raise ValueError("not today")


async def same_path(case: Case) -> str:
    """A plugin registers again with its socket path"""
    return await case.register(await case.started())


async def same_path_streams(case: Case) -> str:
    """Its streams after that"""
    plugin = await _again(case)
    return str(len(plugin.of("ListAndWatch")) - plugin.ended)


async def same_path_ends(case: Case) -> str:
    """Counts when its server ends then"""
    plugin = await _again(case)
    await case.end(plugin)
    return await case.settled()


async def same_path_pod(case: Case) -> str:
    """A pod after that"""
    plugin = await _again(case)
    await case.end(plugin)
    await case.settled()
    return await case.admit("p1")


async def _again(case: Case) -> Plugin:
    plugin = await case.started()
    if await case.register(plugin) == "accepted":
        await plugin.wait_for("ListAndWatch", 2)
    await case.settled()
    return plugin


async def same_path_again(case: Case) -> str:
    """Counts when a plugin ended, and another one registered with its path"""
    first = await case.started()
    await case.end(first)
    await case.settled()
    second = await case.plugin(register=False)
    await second.register()
    await second.wait_for("ListAndWatch")
    return await case.settled()


async def second(case: Case) -> str:
    """Counts when a second plugin has 2 devices, the first one 1"""
    await _two(case)
    return await case.settled()


async def second_first(case: Case) -> str:
    """The first one's stream then"""
    first, _ = await _two(case)
    before = await case.counts()
    await first.set(**devices("a", 7))
    await until(lambda: _either(case, first, before))
    return "ended" if first.ended else f"its next list: {await case.counts()}"


async def second_called(case: Case) -> str:
    """Allocate goes to"""
    first, second = await _two(case)
    await case.admit("p1")
    return {(1, 0): "the first", (0, 1): "the second"}[len(first.of("Allocate")), len(second.of("Allocate"))]


async def second_remains(case: Case) -> str:
    """Counts when the first one ends"""
    first, second = await _two(case)
    await case.end(first)
    seen = await case.settled()
    return f"{seen}, both streams" if second.ended else seen


async def first_remains(case: Case) -> str:
    """Counts when the second one ends instead"""
    _, second = await _two(case)
    await case.end(second)
    return await case.settled()


async def _two(case: Case) -> tuple[Plugin, Plugin]:
    first = await case.started(endpoint="a.sock", devices=devices("a", 1))
    second = await case.plugin("b.sock", devices=devices("b", 2), register=False)
    await second.register()
    await second.wait_for("ListAndWatch")
    await case.settled()
    return first, second


async def _either(case: Case, first: Plugin, before: str) -> bool:
    return bool(first.ended) or await case.counts() != before


FACTS = (
    api,
    other_package,
    other_version,
    no_domain,
    nobody_serves,
    nobody_served,
    subdirectory,
    long_name,
    two_resources,
    two_resources_first,
    options,
    options_fail,
    gives_up,
    same_path,
    same_path_streams,
    same_path_ends,
    same_path_pod,
    same_path_again,
    second,
    second_first,
    second_called,
    second_remains,
    first_remains,
)
