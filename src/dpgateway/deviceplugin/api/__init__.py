"""The kubelet's device-plugin API: one module per version, pure functions between its messages and plain values.

table     the type of a version: an ``Api``, with a row for each RPC
v1beta1   Kubernetes 1.10 and later
v1alpha2  Kubernetes 1.9
v1alpha1  Kubernetes 1.8

``from_*`` decode wire bytes into values, ``to_*`` encode values; ``deviceplugin.calls`` does the calls in between.

A new version takes a folder in protos/, a module here, and its name in ``config.values.ApiName``,
newest first.
"""

from collections.abc import Iterable
from importlib import import_module

from dpgateway.config.values import API_NAMES, ResourceConfig
from dpgateway.deviceplugin.api.table import LARGEST, Answer, Api, Call, Rpc
from dpgateway.deviceplugin.values import Grant
from dpgateway.deviceplugin.wire.pool import POOL
from dpgateway.model import Allocation
from dpgateway.resource.additions import complete
from dpgateway.resource.limit import ListLimit

APIS: tuple[Api, ...] = tuple(import_module(f"{__name__}.{name}").API for name in API_NAMES)
"""Newest first: the order in which Register tries them."""

LIST_LIMIT = ListLimit(LARGEST, APIS[0].largest)


def only(names: Iterable[str], apis: Iterable[Api] = APIS) -> tuple[Api, ...]:
    """The versions of ``apis`` with these names, in the order of ``apis``."""
    wanted = set(names)
    return tuple(api for api in apis if api.name in wanted)


def unfit(config: ResourceConfig, device: str, allocation: Allocation) -> str:
    """Why no container can get the device with this allocation, whatever the version; empty if one can."""
    try:
        whole, _ = complete(allocation, config, 1)
    except ValueError as error:
        return str(error)
    return APIS[0].too_large((Grant((device,), whole),))


__all__ = ["APIS", "LARGEST", "LIST_LIMIT", "POOL", "Answer", "Api", "Call", "Rpc", "only", "unfit"]
