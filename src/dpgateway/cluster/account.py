"""The API server's address, and the files of the account: in a pod the kubelet's, under systemd the operator's.

The token is a file, because a kubelet replaces a projected token before it expires (an hour, by default).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dpgateway.config import ClusterSettings
from dpgateway.errors import ConfigurationError
from dpgateway.kit.files import read

IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The place of a service account's files in a pod (plugin/pkg/admission/serviceaccount)."""
LONGEST = 1024 * 1024
"""Bytes of a token; and what `check` reads of certificates."""


@dataclass(frozen=True, slots=True)
class Account:
    """How to reach the API server, and as whom."""

    server: str
    """A URL: ``https://host:port``; empty if it is unknown."""
    ca: Path | None
    """The certificates that may sign the server's, PEM; None: those of the system."""
    token: Path

    @classmethod
    def of(
        cls, settings: ClusterSettings, environment: Mapping[str, str] = os.environ, files: Path = IN_POD
    ) -> Account:
        """The account that is configured; what isn't, is this pod's."""
        host, port = (environment.get(f"KUBERNETES_SERVICE_{what}", "") for what in ("HOST", "PORT"))
        own = (f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}") if host and port else ""
        # The pod's certificates are those of the pod's server.
        ca = settings.ca or (None if settings.server else files / "ca.crt")
        return cls(settings.server or own, ca, settings.token or files / "token")

    def read_token(self) -> str:
        """The token. Raises ConfigurationError if there is none."""
        try:
            token = read(self.token, LONGEST, follow=True).content.decode().strip()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"the token of the API server can't be read from {self.token}: {why}") from error
        if not token or not token.isascii() or not token.isprintable():
            found = "an empty file" if not token else f"a file of {len(token)} characters that aren't a token's"
            raise ConfigurationError(f"{self.token}: found {found}, expected the token of a service account")
        return token
