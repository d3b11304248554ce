"""Checks, when a device is listed, whether any container could be given it."""

from __future__ import annotations

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.api import APIS
from dpgateway.deviceplugin.values import Grant
from dpgateway.model import Allocation
from dpgateway.resource.additions import complete


def unfit(config: ResourceConfig, device: str, allocation: Allocation) -> str:
    """Why no container can get the device with this allocation; empty if one can."""
    try:
        whole, _ = complete(allocation, config, 1)
    except ValueError as error:
        return str(error)
    return APIS[0].too_large((Grant((device,), whole),))
