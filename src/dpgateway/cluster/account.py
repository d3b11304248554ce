"""The API server's address, and the files of the account: in a pod the kubelet's, under systemd the operator's.

The token is a file, because a kubelet replaces a projected token before it expires (an hour, by default).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dpgateway.errors import ConfigurationError

IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The place of a service account's files in a pod (plugin/pkg/admission/serviceaccount)."""


@dataclass(frozen=True, slots=True)
class Account:
    """How to reach the API server, and as whom."""

    server: str
    """A URL: ``https://host:port``."""
    ca: Path | None
    """The certificates that may sign the server's, PEM; None: those of the system."""
    token: Path

    @classmethod
    def in_pod(cls, environment: Mapping[str, str] = os.environ, files: Path = IN_POD) -> Account:
        """The account of this pod. Raises ConfigurationError outside of a pod."""
        host, port = (environment.get(f"KUBERNETES_SERVICE_{what}", "") for what in ("HOST", "PORT"))
        if not host or not port:
            raise ConfigurationError(
                "the API server is unknown: found no KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT in the "
                "environment, as in each pod; elsewhere set cluster.server, cluster.ca and cluster.token"
            )
        return cls(
            f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", files / "ca.crt", files / "token"
        )

    def read_token(self) -> str:
        """The token. Raises ConfigurationError if there is none."""
        try:
            token = self.token.read_text().strip()
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"the token of the API server can't be read from {self.token}: {error}") from error
        if not token or not token.isascii() or not token.isprintable():
            found = "an empty file" if not token else f"a file of {len(token)} characters that aren't a token's"
            raise ConfigurationError(f"{self.token}: found {found}, expected the token of a service account")
        return token
