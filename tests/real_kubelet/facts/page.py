"""The document with every release's facts: made of observations, and read again to compare.

A text that is too long for a cell stands below its table; the cell keeps the text's first word and a number.
"""

import re
from collections.abc import Mapping, Sequence

from tests.real_kubelet.facts import GROUPS, Fact
from tests.real_kubelet.facts.case import DASH
from tests.real_kubelet.programs import DEVICE_MANAGERS, RELEASES
from tests.real_kubelet.recipe import KUBERNETES

LONG = 23  # characters
CELL = re.compile(r"^(.*?) ?\((\d+)\)$")
NOTE = re.compile(r"^(\d+)\. `(.*)`$", re.MULTILINE)
INTRODUCTION = """# What each kubelet really does

What a device plugin sees of a kubelet, release by release. Nothing here is copied from documentation: every cell was
observed on the release's own device manager, with a tiny plugin on the other side of its socket. These are the patch
releases: {patches}.

The device managers run without the rest of their kubelets: containers start in name only, the device manager of 1.8 has
no scheduler's predicates, and the device managers before 1.18 know no topology manager.
[tests/real_kubelet](../../tests/real_kubelet/README.md) says how they are built and driven.
`python -m tools.kubelet_table` writes this page. The tests with real kubelets fail when the page isn't true any more,
or when a simulated kubelet does anything else.

- The plugin has two devices unless a row says otherwise, and speaks the API of the release.
- Counts are the node's allocatable of its capacity, "1 of 2". "none": the node doesn't name the resource.
  "{dash} of 0": the node's capacity names the resource, its allocatable doesn't.
- "{dash}" alone: there is no such thing in this release, or nothing to compare with.
- *refused*: the pod fails when it is admitted; *not started*: its container can't start; *panics*: the kubelet does.
"""
LEGENDS = {
    "Calls": "List is ListAndWatch, Options is GetDevicePluginOptions, Prefer is GetPreferredAllocation, PreStart is "
    "PreStartContainer, which the plugin asks for.",
    "Devices": "What happens to the node's counts, and to containers, when the list changes or its stream ends.",
    "Pods": "What happens to a pod that wants devices.",
    "Restarts and upgrades of the kubelet": "The kubelet was killed while a pod held a device, and started again; "
    "it admits its old pods again.",
}
Observed = Mapping[tuple[str, str], str]  # by release and the fact's name


def write(observed: Observed) -> str:
    introduction = INTRODUCTION.format(patches=", ".join(map(_patch, RELEASES)), dash=DASH)
    return "\n".join([introduction, *(_group(title, facts, observed) for title, facts in GROUPS.items())])


def read(text: str) -> dict[tuple[str, str], str]:
    """What a document says, with the texts in their places."""
    found: dict[tuple[str, str], str] = {}
    names = {heading(fact): fact.__name__ for facts in GROUPS.values() for fact in facts}
    for part in text.split("\n## ")[1:]:
        notes = dict(NOTE.findall(part))
        for line in part.splitlines():
            first, *cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if first in names and line.startswith("|"):
                row = zip(RELEASES, (_expand(cell, notes) for cell in cells), strict=True)
                found |= {(release, names[first]): cell for release, cell in row}
    return found


def heading(fact: Fact) -> str:
    return (fact.__doc__ or "").strip()


def _group(title: str, facts: Sequence[Fact], observed: Observed) -> str:
    notes: dict[str, int] = {}
    rows = [["", *RELEASES]]
    rows += [[heading(fact), *(_cell(observed[one, fact.__name__], notes) for one in RELEASES)] for fact in facts]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    legend = [LEGENDS[title], ""] if title in LEGENDS else []
    listed = ["", *(f"{number}. `{text}`" for text, number in notes.items())] if notes else []
    return "\n".join([f"## {title}", "", *legend, *lines, *listed, ""])


def _cell(text: str, notes: dict[str, int]) -> str:
    if len(text) <= LONG:
        return text
    head, colon, rest = text.partition(": ")
    head, rest = (head, rest) if colon and len(head) <= LONG else ("", text)
    return f"{head} ({notes.setdefault(rest, len(notes) + 1)})".strip()


def _expand(cell: str, notes: Mapping[str, str]) -> str:
    match = CELL.match(cell)
    if not match:
        return cell
    return f"{match[1]}: {notes[match[2]]}" if match[1] else notes[match[2]]


def _patch(release: str) -> str:
    found = KUBERNETES.search((DEVICE_MANAGERS / f"v{release.replace('.', '_')}" / "go.mod").read_text())
    if not found:
        raise RuntimeError(f"the go.mod of {release} names no k8s.io/kubernetes")
    return found[1].removeprefix("v")
