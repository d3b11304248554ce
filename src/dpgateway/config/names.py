"""The names of extended resources, by the strictest rule that any kubelet since 1.10 has.

Source: v1helper.IsExtendedResourceName (kubernetes pkg/apis/core/v1/helper/helpers.go), which asks
validation.IsQualifiedName about ``requests.`` + name. A name that the kubelet refuses would fail only at Register.
"""

from __future__ import annotations

import re

from dpgateway.config.problems import Wrong, describe

EXPECTED = "an extended resource name like example.com/serial"
LONGEST_PREFIX = 253 - len("requests.")
LONGEST_NAME = 63

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def check_resource_name(name: str) -> str:
    """``name``, if every kubelet since 1.10 accepts it. Raises Wrong."""
    hint = _fault(name)
    if hint:
        raise Wrong(describe(name), EXPECTED, hint)
    return name


def _fault(name: str) -> str:
    if name.count("/") != 1:
        return "it has exactly one '/', between your domain and the name of the thing"
    if "kubernetes.io/" in name:
        return "kubernetes.io/ belongs to Kubernetes itself; use a domain of your own"
    if name.startswith("requests."):
        return "the kubelet refuses names that start with 'requests.'"
    prefix, _, thing = name.partition("/")
    return _prefix_fault(prefix) or _thing_fault(thing)


def _prefix_fault(prefix: str) -> str:
    if len(prefix) > LONGEST_PREFIX:
        return f"the part before '/' has {len(prefix)} characters, at most {LONGEST_PREFIX} are allowed"
    if _SUBDOMAIN.fullmatch(prefix):
        return ""
    if _SUBDOMAIN.fullmatch(prefix.lower()):
        return f"the part before '/' must be lower case: {prefix.lower()}"
    return "the part before '/' is a domain: lower-case letters, digits, '-' and '.', no '-' or '.' at a label's ends"


def _thing_fault(thing: str) -> str:
    if not 1 <= len(thing) <= LONGEST_NAME:
        return f"the part after '/' has {len(thing)} characters, 1 to {LONGEST_NAME} are allowed"
    if _NAME.fullmatch(thing):
        return ""
    return "the part after '/' has letters, digits, '-', '_' and '.', and begins and ends with a letter or digit"
