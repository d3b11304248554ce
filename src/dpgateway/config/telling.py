"""A configuration as plain values, which the running gateway tells of the one that it serves; and back.

What is told has the form of the file, with defaults filled in, so that it is read as a file is.
"""

from __future__ import annotations

from typing import Any

from dpgateway.config.completing import Configuration
from dpgateway.config.document import Document, of_plain


def told(configuration: Configuration) -> dict[str, Any]:
    """What JSON can hold."""
    kubelet, runtime = configuration.kubelet, configuration.runtime
    places = {"device_plugins_dir": kubelet.device_plugins_dir, "pod_resources_socket": kubelet.pod_resources_socket}
    return {
        "resources": [resource.written for resource in configuration.resources],
        "kubelet": {key: str(path) for key, path in places.items() if path is not None} | {"apis": list(kubelet.apis)},
        "state_dir": str(configuration.state_dir),
        "runtime": {
            "cdi_dirs": [str(path) for path in runtime.cdi_dirs],
            **({} if runtime.socket is None else {"socket": str(runtime.socket)}),
        },
        "web": {"listen": configuration.web.listen},
    }


def heard(told: Any) -> Document:  # noqa: ANN401  JSON
    """What another gateway told. Raises InvalidConfiguration if this one wouldn't take it."""
    return of_plain(told, "the running gateway's configuration")
