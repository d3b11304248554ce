"""What an answer that isn't the wanted one means: the API server's own refusal, a balancer's page, or no answer."""

from __future__ import annotations

import re
from pathlib import Path

from dpgateway.errors import GatewayError, cut

LONGEST_REASON = 1000
TURNED_AWAY = frozenset({429, 502, 503, 504})
"""With a Retry-After these mean that the request wasn't begun (client-go, rest/with_retry.go)."""
LONGEST_AFTER = 60.0
"""Seconds of a Retry-After."""
AWAY = TURNED_AWAY | {0, 404, 500}
"""404 if it isn't the API server that says it: a balancer without a server may."""
UNSENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "ConfigurationError"})
"""Errors before a request is sent."""
AUDIT_ID = "Audit-Id"
"""A header of each of the API server's answers (apiserver, pkg/endpoints/filters/audit_init.go)."""
_ADDRESS = re.compile(r" for url '[^']*'")
"""Of the library's errors."""

SERVER_ERROR = 500
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE, INVALID = 401, 403, 404, 409, 410, 422
OF_ALL = AWAY | {UNAUTHORIZED}
"""Without a word on the object: all else may be said of one only, as by a webhook or a policy that refuses it."""


class ClusterError(GatewayError):
    """The API server refused a request, or didn't answer."""

    def __init__(
        self, text: str, status: int = 0, after: float = 0.0, *, unclear: bool = False, missing: bool = False
    ) -> None:
        """``status``: of HTTP; 0 if there was no answer. ``after``: seconds that the server asks to wait. ``unclear``:
        whether the request may have been done. ``missing``: whether it is the object that isn't there.
        """
        super().__init__(text)
        self.status, self.after, self.unclear, self.missing = status, after, unclear, missing


class UnservedApi(ClusterError):
    """The API server itself doesn't have the API (apiserver, pkg/util/notfoundhandler; older ones have a page)."""


def refusal(where: str, error: Exception, token: Path | None) -> ClusterError:
    """``where``: the request and its server; ``error``: the client's; ``token``: the account's file."""
    # The address of a watch differs each time, and a refusal that persists is one problem.
    text = _ADDRESS.sub("", str(error))
    text = cut(text or "no answer", LONGEST_REASON)  # a timeout of the library has no text
    # The status is behind an error of the library, where an answer of a proxy fails, in place of the API server's.
    status, after, reason, name, is_own = 0, 0.0, None, None, False
    cause: BaseException | None = error
    while cause is not None and not status:
        response, found = getattr(cause, "response", None), getattr(cause, "status", None)
        status = getattr(found, "code", None) or getattr(response, "status_code", None) or 0
        reason, name = getattr(found, "reason", None), getattr(getattr(found, "details", None), "name", None)
        if response is not None and status in TURNED_AWAY:
            said = response.headers.get("retry-after", "")
            after = min(float(said), LONGEST_AFTER) if said.isdecimal() else 0.0
        is_own = reason == "NotFound" or AUDIT_ID in getattr(response, "headers", ())
        cause = cause.__cause__ or cause.__context__
    if status == UNAUTHORIZED:
        text = f"the token in {token} isn't accepted: {text}"
    if status:
        missing = status == NOT_FOUND and reason == "NotFound" and bool(name)
        make = UnservedApi if status == NOT_FOUND and is_own and not missing else ClusterError
        return make(f"{where}: found status {status}: {text}", status, after, missing=missing)
    kind = type(error).__name__
    return ClusterError(f"{where}: {kind}: {text}", unclear=kind not in UNSENT)
