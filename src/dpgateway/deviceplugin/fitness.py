"""What a resource's configuration, and the API, let a container have with a device: judged when it is listed."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.api import APIS
from dpgateway.deviceplugin.values import Grant
from dpgateway.model import Allocation, Mount
from dpgateway.resource.additions import Additions, add, hidden
from dpgateway.resource.shares import environment


class Fitness:
    """Made anew for each configuration."""

    def __init__(self, config: ResourceConfig) -> None:
        env = {**environment(config.shares.env, 1, config.shares.count), **config.env}
        self._extra = Additions(env, config.annotations, config.mounts)

    def lacks(self) -> str:
        """Which of the configuration's mounts isn't there on the host; empty if none is known to be missing."""
        return next((f"mounts[{number}]: {why}" for number, why in missing(self._extra.mounts).items()), "")

    def unfit(self, device: str, allocation: Allocation) -> str:
        if why := hidden(allocation, self._extra):
            return why
        try:
            complete, _ = add(allocation, self._extra)
        except ValueError as error:
            return str(error)
        return APIS[0].too_large((Grant((device,), complete),))


def missing(mounts: Sequence[Mount]) -> dict[int, str]:
    """By number: which mounts name nothing on the host. A pod sees its own files, not the host's, so nothing is known
    there (kubelets set this variable in all containers: pkg/kubelet/envvars/envvars.go).
    """
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return {}
    lacking = {number: mount.host_path for number, mount in enumerate(mounts) if _is_missing(mount)}
    return {number: f"{path} isn't there on this host, and is to be mounted" for number, path in lacking.items()}


def _is_missing(mount: Mount) -> bool:
    try:
        os.stat(mount.host_path)  # noqa: PTH116  a Path isn't needed for it
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # it is there, or nobody knows
        return False
    return False
