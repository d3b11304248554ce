"""A simulated cluster: an API server, a scheduler, controllers, and the kubelets of its nodes; the door for tests.

What a person does with kubectl is a method: pods, claims, classes. It acts on the API server's objects, also while the
server doesn't answer dpgateway.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dpgateway_simulator.apiserver import Object, SimulatedApiServer, Store
from dpgateway_simulator.cluster.controllers import control
from dpgateway_simulator.cluster.scheduler import NAMESPACE, schedule
from dpgateway_simulator.cluster.view import ClusterView
from dpgateway_simulator.kubelet.cluster_node import ClusterNode, KubeletPauses
from dpgateway_simulator.kubelet.kubelet import Kubelet

Limits = Mapping[str, int]
SHORT = KubeletPauses(
    registry=0.02,
    first_look=0.0,
    first_wipe=0.01,
    prepare_again=0.2,
    unprepare_again=0.1,
    start_again=0.2,
    health_again=0.1,
    status=0.05,
)
"""KubeletPauses for tests. The others keep their length: turn the kubelet's clock."""


class PodEndedError(Exception):
    """A pod failed that was to run."""


class SimulatedCluster(ClusterView):
    """Used from the event loop, as a context manager: its end kills the kubelets."""

    def __init__(self, *, pauses: KubeletPauses = SHORT, port: int = 0) -> None:
        """`port`: of the API server, on loopback; 0: any."""
        self.server = SimulatedApiServer()
        super().__init__(self.server.store)
        self._pauses, self._port = pauses, port
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self.server.up(self._port)
        for name, look in (("scheduler", schedule), ("controllers", control)):
            self._tasks.append(task := asyncio.create_task(self._follow(look), name=f"cluster: {name}"))
            task.add_done_callback(lambda _: self.server.store.wake())
        return self

    async def _follow(self, look: Callable[[Store], None]) -> None:
        """Looks at the objects now and after each change, while there is a server; never returns."""
        while True:
            if self.server.serving:
                look(self.server.store)
            await self.server.store.changed()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for kubelet in self.kubelets.values():
            await kubelet.kill()
        for task in self._tasks:
            task.cancel()
        done = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.server.down()
        for result in done:
            if isinstance(result, Exception):
                raise result

    def node(self, version: str = "1.37", *, root: Path, name: str = "n1", cdi: bool = True, **how: Any) -> Kubelet:  # noqa: ANN401
        """A node's kubelet, not started yet. `root` stands for /var/lib/kubelet, `root/cdi` for /var/run/cdi; without
        `cdi` the runtime drops CDI names. `how`: as of `Kubelet`, and `pauses`.
        """
        pauses = how.pop("pauses", self._pauses)
        node = ClusterNode(self.server, name, (root / "cdi",), cdi=cdi, pauses=pauses)
        self.kubelets[name] = Kubelet(version, root / "device-plugins", cluster=node, **how)
        return self.kubelets[name]

    def account(self, folder: Path) -> dict[str, str]:
        """The mapping `cluster` of a gateway's configuration, with its token in the folder."""
        token = folder / "token"
        token.write_text(self.server.token or "simulated")
        return {"server": self.server.url, "token": str(token)}

    # what people make

    def device_class(
        self,
        name: str,
        driver: str,
        *,
        resource: str | None = None,
        attributes: Mapping[str, str | int | bool] | None = None,
        config: Iterable[Object] = (),
    ) -> Object:
        """A DeviceClass of a driver's devices with these attributes. `resource`: its extendedResourceName."""
        terms = [f'device.driver == "{driver}"']
        for key, value in (attributes or {}).items():
            text = f'"{value}"' if isinstance(value, str) else str(value).lower()
            terms.append(f'device.attributes["{driver}"].{key} == {text}')
        spec: Object = {"selectors": [{"cel": {"expression": " && ".join(terms)}}]}
        spec |= {"extendedResourceName": resource} if resource else {}
        spec |= {"config": list(config)} if config else {}
        return self.server.store.create("deviceclasses", "", {"metadata": {"name": name}, "spec": spec})

    def claim(self, name: str, *requests: Object, **devices: object) -> Object:
        """A ResourceClaim. A request is as in its spec, such as {"name": "r", "exactly": {"deviceClassName": "c"}};
        `devices`: more of spec.devices, `constraints` or `config`.
        """
        spec = {"devices": {"requests": list(requests), **devices}}
        return self.server.store.create("resourceclaims", NAMESPACE, {"metadata": {"name": name}, "spec": spec})

    def create(  # noqa: PLR0913  what a pod has
        self,
        name: str,
        containers: Mapping[str, Limits],
        *,
        init: Mapping[str, Limits] | None = None,
        sidecars: Mapping[str, Limits] | None = None,
        claims: Mapping[str, Iterable[str]] | None = None,
        node: str | None = None,
    ) -> Object:
        """A pod: its containers with their limits, such as {"c": {"example.com/x": 1}}. `claims`: for each claim the
        containers that use it, "c" all of it or "c/REQUEST"; `node`: it must go there.
        """
        uses = {it: tuple(users) for it, users in (claims or {}).items()}
        spec: Object = {
            "containers": [_container(it, limits, uses) for it, limits in containers.items()],
            "initContainers": [
                *(_container(it, limits, uses) for it, limits in (init or {}).items()),
                *(
                    {**_container(it, limits, uses), "restartPolicy": "Always"}
                    for it, limits in (sidecars or {}).items()
                ),
            ],
            "resourceClaims": [{"name": it, "resourceClaimName": it} for it in uses],
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
        }
        metadata = {"name": name, "labels": {"app": name}}
        return self.server.store.create("pods", NAMESPACE, {"metadata": metadata, "spec": spec})

    def delete(self, pod: str, *, force: bool = False) -> None:
        """Deletes a pod. By force it is gone at once for the scheduler, while its containers still end."""
        self.server.store.delete(("pods", NAMESPACE, pod), grace=0 if force else None)

    # waiting

    async def until(self, pod: str, phase: str, *, because: str = "", within: float = 30) -> Object:
        """Waits until the pod's phase is this, and `why` has the text. Raises TimeoutError, which says what it is
        instead, and PodEndedError if it is to run and has failed.
        """
        try:
            async with asyncio.timeout(within):
                while self.phase(pod) != phase or because not in self.why(pod):
                    if (self.phase(pod), phase) == ("Failed", "Running"):
                        raise PodEndedError(f"pod {pod} failed: {self.why(pod)}")
                    for task in self._tasks:
                        if task.done():
                            task.result()
                    await self.server.store.changed()
        except TimeoutError as error:
            found = f"{self.phase(pod)}: {self.why(pod)}"
            raise TimeoutError(f"pod {pod} isn't {phase} after {within:g} s, but {found}") from error
        return self.pod(pod) or {}

    async def run(self, name: str, containers: Mapping[str, Limits], *, within: float = 30, **how: Any) -> Object:  # noqa: ANN401
        """Creates a pod, and waits until it runs."""
        self.create(name, containers, **how)
        return await self.until(name, "Running", within=within)

    async def end(self, pod: str, *, within: float = 30) -> None:
        """Deletes a pod, and waits until it is gone."""
        self.delete(pod)
        await self.until(pod, "Gone", within=within)


def _container(name: str, limits: Limits, claims: Mapping[str, tuple[str, ...]]) -> Object:
    uses = [(claim, user.partition("/")) for claim, users in claims.items() for user in users]
    mine = [
        {"name": claim, **({"request": request} if request else {})}
        for claim, (container, _, request) in uses
        if container == name
    ]
    return {"name": name, "resources": {"limits": {key: str(n) for key, n in limits.items()}, "claims": mine}}
