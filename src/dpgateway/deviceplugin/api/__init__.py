"""The kubelet's device-plugin API: one module per version, pure functions between its messages and the model.

``from_*`` turn wire bytes into model values, ``to_*`` model values into wire bytes. A version is an ``Api`` in
``APIS``: a new version takes its module and its name there, nothing else. What the calls do is left to ``resource``.
"""

from collections.abc import Iterable

from dpgateway.deviceplugin.api import v1alpha1, v1alpha2, v1beta1
from dpgateway.deviceplugin.api.table import Answer, Api, Call, ListEncoder, Rpc
from dpgateway.deviceplugin.api.v1beta1 import from_answer
from dpgateway.deviceplugin.wire.pool import POOL

APIS: tuple[Api, ...] = (v1beta1.API, v1alpha2.API, v1alpha1.API)
"""Newest first, the order in which a kubelet is asked."""


def only(names: Iterable[str], apis: Iterable[Api] = APIS) -> tuple[Api, ...]:
    """The versions of ``apis`` with these names, in the order of ``apis``."""
    wanted = set(names)
    return tuple(api for api in apis if api.name in wanted)


__all__ = ["APIS", "POOL", "Answer", "Api", "Call", "ListEncoder", "Rpc", "from_answer", "only"]
