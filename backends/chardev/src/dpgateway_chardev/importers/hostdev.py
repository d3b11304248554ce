"""k8s-hostdev-plugin: a resource of one device for each device node of its flag.

Source: honkiko/k8s-hostdev-plugin, hostdev_plugin.go.
"""

from __future__ import annotations

import re

from dpgateway.importing import Imported, ImportedResource, NotKept, Source, flags
from dpgateway_chardev.importers import DRIVER, RUNNING
from dpgateway_chardev.importers.paths import in_dev, is_block, is_directory

_EXPECTED = "the flag --devs, such as --devs=/dev/mem:rwm"
_REFUSED = "expected PATH:PERMISSIONS of a device node in /dev, /dev/mem:rwm, without which the plugin ends"
_IDS = f"there it is the path with /dev/; {RUNNING}"


def k8s_hostdev_plugin(source: Source) -> Imported:
    """Converts its flag. Raises InvalidConfiguration."""
    found = [value for words in source.commands() for name, value in flags(words) if name == "devs"]
    if not found:
        raise source.nothing(_EXPECTED)
    resources, not_kept = list[ImportedResource](), list[NotKept]()
    for value, text in [(one, text) for one in found for text in re.split(r"\s*,\s*", one.value.strip())]:
        path, _, permissions = text.partition(":")
        wrong = not permissions or set(permissions) - set("rwm") or len(set(permissions)) < len(permissions)
        if wrong or not in_dev(path) or is_directory(path, source.dev):
            not_kept.append(NotKept(value.place, text, _REFUSED))
            continue
        options = {"paths": [path], "permissions": permissions}
        options |= {"type": "block"} if is_block(path, source.dev) else {}
        name = f"hostdev.k8s.io/{path[1:].replace('/', '_')}"
        not_kept.append(NotKept(value.place, "the ids", _IDS, name))
        selector = source.selector_at(value.place)
        resources.append(ImportedResource(name, value.place, DRIVER, options, selector=selector))
    return Imported(tuple(resources), tuple(not_kept))
