"""The flags of containers of Intel's device plugins, as the settings of the operator's objects."""

from __future__ import annotations

import re
from dataclasses import replace

from dpgateway.importing import Source, Written, flags, items, text

_FLAGS = {
    "allocation-policy": "preferredAllocationPolicy",
    "allow-ids": "allowIDs",
    "bypath": "bypathMode",
    "dcap-infra-resources": "dcapInfraResources",
    "deny-ids": "denyIDs",
    "dpdk-driver": "dpdkDriver",
    "driver": "driver",
    "enable-monitoring": "enableMonitoring",
    "enclave-limit": "enclaveLimit",
    "kernel-vf-drivers": "kernelVfDrivers",
    "max-num-devices": "maxNumDevices",
    "monitoring-mode": "monitoringMode",
    "provision-limit": "provisionLimit",
    "shared-dev-num": "sharedDevNum",
}
"""The settings' names in objects, keyed by flag."""
SGX_OF_FLAGS = 110
"""The SGX plugin's default for both limits."""
_VARIABLE = re.compile(r"\$\(([\w.-]+)\)")


def of_flags(container: Written, source: Source) -> Written:
    """The settings in a container's flags. ``otherValues`` is set if a flag's value is in another file."""
    words = [part for key in ("command", "args") for part in items(container.below(key))]
    limits = {key: Written(SGX_OF_FLAGS, container.place) for key in ("enclaveLimit", "provisionLimit")}
    given: dict[str, Written] = {}
    for name, flag in flags(words):
        key = _FLAGS.get(name)
        variable = _VARIABLE.fullmatch(flag.value)
        value = replace(flag, value=_of_environment(variable[1], container, source)) if variable else flag
        if key is not None and variable and not value.value:
            given["otherValues"] = replace(flag, value=True)
        elif key == "kernelVfDrivers":
            given[key] = replace(value, value=[replace(value, value=one) for one in value.value.split(",")])
        elif key is not None:
            given[key] = replace(value, value=typed_flag(value.value))
    return Written(limits | given, container.place)


def typed_flag(value: str) -> object:
    """Converts the text to an integer or a boolean where it is one."""
    if value.isdecimal():
        return int(value)
    return value == "true" if value in {"true", "false"} else value


def _of_environment(name: str, container: Written, source: Source) -> str:
    """The value of a container's variable, which may be in a ConfigMap; empty if it isn't here."""
    variable = next((one for one in items(container.below("env")) if text(one.below("name")) == name), None)
    if variable is None:
        return ""
    if value := text(variable.below("value")):
        return value
    key = variable.part("valueFrom", "configMapKeyRef")
    maps = (one for one in source.objects("ConfigMap") if text(one.part("metadata", "name")) == text(key.below("name")))
    return next((text(one.part("data", text(key.below("key")))) for one in maps), "")
