"""What a kubelet asks of one resource, made of the parts that a test has."""

import logging
from typing import Any

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.api import APIS
from dpgateway.deviceplugin.calls import KubeletCalls
from dpgateway.deviceplugin.cdi import CdiDelivery
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.kit.observable import Observable
from dpgateway.resource.freeing import Releases
from dpgateway.resource.granting import Granting
from dpgateway.resource.inventory import Inventory


def kubelet_calls(
    config: Observable[ResourceConfig],
    inventory: Inventory,
    driver: Any,
    cdi: CdiDelivery,
    log: logging.LoggerAdapter[logging.Logger],
    *,
    holdings: ResourceHoldings,
) -> KubeletCalls:
    granting = Granting(config, inventory, driver, Releases(inventory, driver, log), log)
    return KubeletCalls(granting, holdings, cdi, APIS[0])
