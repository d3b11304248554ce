"""Runs the device managers of nine kubelet releases and writes what they do into docs/reference/kubelets.md.

``python -m tools.kubelet_table`` writes the document, in about half a minute. With ``--check`` it writes nothing and
exits 1 when the document differs. ``python -m tests.real_kubelet.build`` builds the device managers.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import sys
from pathlib import Path

from tests.real_kubelet.build import missing_to_run
from tests.real_kubelet.facts import FACTS
from tests.real_kubelet.facts.observing import observe_all
from tests.real_kubelet.facts.page import write
from tests.real_kubelet.programs import PROGRAMS, RELEASES

DOCUMENT = Path(__file__).resolve().parent.parent / "docs/reference/kubelets.md"


def missing() -> list[str]:
    wanted = [PROGRAMS[f"device-manager-{release}"] for release in RELEASES]
    unbuilt = [one.name for one in wanted if not one.built]
    texts = [f"not built: {', '.join(unbuilt)}; run python -m tests.real_kubelet.build"] if unbuilt else []
    return texts + missing_to_run()


def document() -> str:
    keys = [("real", release, fact) for release in RELEASES for fact in FACTS]
    observed = asyncio.run(observe_all(keys))
    failures = [f"{key[1]}, {key[2]}: {text}" for key, text in observed.items() if text.startswith("can't be told")]
    if failures:
        sys.exit("\n".join(failures))
    return write({(release, fact): text for (_, release, fact), text in observed.items()})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the document is stale")
    check = parser.parse_args().check
    if texts := missing():
        sys.exit("\n".join(texts))
    new = document()
    if not check:
        DOCUMENT.write_text(new)
        return 0
    old = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "the document", "the kubelets", lineterm="", n=0)
    print("\n".join(lines), end="\n" if old != new else "", file=sys.stderr)
    return int(old != new)


if __name__ == "__main__":
    sys.exit(main())
