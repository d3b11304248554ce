"""What a driver lists."""

from typing import Any

from dpgateway import Driver


def reasons(driver: Driver) -> dict[str, Any]:
    """Why each device, by its id, is Unhealthy; None if it is Healthy."""
    return {device.id: device.health.reason for device in driver.devices()}
