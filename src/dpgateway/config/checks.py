"""Validates typed values. Each check returns the value, or raises Wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias, TypeVar

from dpgateway.config.problems import Wrong, shown
from dpgateway.config.spelling import DOMAIN, format_duration, parse_listen
from dpgateway.model import Allocation, Mount, place

T = TypeVar("T")
Check: TypeAlias = Callable[[T], T]

MOST_SHARES = 1000
LONGEST_POOL = 253
"""Bytes. Other gateways read the name in a line of a lock's file."""
LONGEST_DRA_DRIVER = 63
"""Characters (DriverNameMaxLength, resource/v1/types.go)."""

SHARE_FIELD = re.compile(r"\{(id|share)\}|\{sha1:((?:\{(?:id|share)\}|[^{}])*)\}")
"""A field in ``shares.ids``."""
GRANTED_FIELD = re.compile(r"\{(granted|shares)\}|\{part:([0-9]{1,15})\}")
"""A field in ``shares.env``."""
SERVER = re.compile(r"https?://(?:[^/\s:@?#\[\]]+|\[[^\]/\s]+\])(?::([0-9]{1,5}))?")
"""A URL of a server, without a path; an IPv6 address is in brackets."""
_BRACES = frozenset("{}")


def _expect(what: str, holds: Callable[[T], bool], hint: str = "", *, show: Callable[[T], str] = shown) -> Check[T]:
    """A check that refuses values for which ``holds`` is false. ``show`` formats the value for the error."""

    def check(value: T) -> T:
        if not holds(value):
            raise Wrong(show(value), what, hint)
        return value

    return check


def _is_server(url: re.Match[str] | None) -> bool:
    return url is not None and 0 < int(url[1] or 443) < 65536


def _is_each_once(values: Sequence[object]) -> bool:
    return 0 < len(values) == len(set(values))


share_count: Check[int] = _expect(f"a number of shares from 1 to {MOST_SHARES}", lambda n: 1 <= n <= MOST_SHARES)
share_ids: Check[str] = _expect(
    "a text with {share}, and perhaps {id} or {sha1:...}, as in {id}-{share}",
    lambda form: "{share}" in form and _BRACES.isdisjoint(SHARE_FIELD.sub("", form)),
)
driver_name: Check[str] = _expect("the name of a driver", bool)
pool_name: Check[str] = _expect(
    f"the name of a pool, in one line of at most {LONGEST_POOL} bytes, or null",
    lambda name: name.isprintable() and 0 < len(name.encode()) <= LONGEST_POOL,
)
dra_driver: Check[str] = _expect(
    f"a DNS name of at most {LONGEST_DRA_DRIVER} characters, like dra.example.com",
    lambda name: len(name) <= LONGEST_DRA_DRIVER and DOMAIN.fullmatch(name) is not None,
)
https: Check[str] = _expect("a URL: https://HOST:PORT", lambda url: _is_server(SERVER.fullmatch(url)))
absolute: Check[Path] = _expect("an absolute path", Path.is_absolute)
positive: Check[timedelta] = _expect(
    "a duration of at least 1ms", lambda duration: duration >= timedelta(milliseconds=1), show=format_duration
)
apis: Check[Sequence[str]] = _expect(
    "one or more APIs, each once", _is_each_once, show=lambda names: f"[{', '.join(names)}]"
)


def _at_most(seconds: int, why: str) -> Check[timedelta]:
    """A check of positive durations with an upper bound."""
    longest = timedelta(seconds=seconds)
    short: Check[timedelta] = _expect(f"at most {seconds}s", lambda one: one <= longest, why, show=format_duration)
    return lambda duration: positive(short(duration))


prefer_timeout = _at_most(1, "the kubelet admits no other pod while it waits, and can choose by itself")
# KubeletPreStartContainerRPCTimeoutInSecs = 30, kubelet 1.10 to 1.37
prepare_timeout = _at_most(28, "the kubelet waits 30s for PreStartContainer, and the answer has to reach it")


def directories(paths: Sequence[Path]) -> Sequence[Path]:
    if not _is_each_once(paths):
        raise Wrong(shown(list(paths)), "one or more directories, each once")
    return tuple(map(absolute, paths))


def listen(text: str) -> str:
    parse_listen(text)
    return text


def environment(env: Mapping[str, str]) -> Mapping[str, str]:
    for name in env:
        if not name or "=" in name or "\0" in name:
            raise Wrong(shown(name), "environment variables' names, not empty and without '='")
    return _given("env", env)


def granted_environment(env: Mapping[str, str]) -> Mapping[str, str]:
    for text in env.values():
        if not _BRACES.isdisjoint(GRANTED_FIELD.sub("", text)):
            raise Wrong(shown(text), "texts with {granted}, {shares} or {part:100} and no other braces")
    return environment(env)


def runtime_annotations(texts: Mapping[str, str]) -> Mapping[str, str]:
    return _given("annotations", texts)


def mounts(them: Sequence[Mount]) -> Sequence[Mount]:
    seen: set[str] = set()
    for mount in them:
        if (path := place(mount.container_path)) in seen:
            raise Wrong(f"container_path {shown(path)} twice", "each container_path once")
        seen.add(path)
    return them


def _given(field: str, texts: Mapping[str, str]) -> Mapping[str, str]:
    try:
        Allocation(**{field: texts})  # type: ignore[arg-type]
    except ValueError as error:
        raise Wrong(shown(texts), "values that a container can get", str(error).partition(".")[2]) from error
    return texts
