"""Draws the lifecycle (deviceplugin/registration/lifecycle.py) as a diagram and a table in docs/design/kubelet.md.

``diagram.py`` writes the document; ``diagram.py --check`` writes nothing and exits 1 when the document differs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dpgateway.deviceplugin.registration.lifecycle import TABLE, Action, State, Trigger

DOCUMENT = Path(__file__).resolve().parent.parent / "docs/design/kubelet.md"
BEGIN, END = "<!-- drawn by tools/diagram.py -->", "<!-- end of the drawing -->"


def arrows() -> dict[tuple[State, State], list[str]]:
    """The events between each pair of states. STOP, and events without any effect, are left out."""
    found: dict[tuple[State, State], list[str]] = {}
    for state, row in TABLE.items():
        for event, (target, action) in row.items():
            if (target is state and action is Action.NOTHING) or event is Trigger.STOP:
                continue
            found.setdefault((state, target), []).append(event.name)
    return found


def drawing() -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.UNREADY.name}"]
    lines += [f"    {a.name} --> {b.name}: {', '.join(events)}" for (a, b), events in arrows().items()]
    lines += ["```", "", "STOP leads from every state to STOPPED.", ""]
    states = [state for state in State if state is not State.STOPPED]
    lines.append("| event | " + " | ".join(state.name for state in states) + " |")
    lines.append("|---" * (len(states) + 1) + "|")
    for event in Trigger:
        cells = [f"{event.name}: {event.value}", *(_cell(state, event) for state in states)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| action | means |", "|---|---|"]
    lines += [f"| {action.name} | {action.value} |" for action in Action if action is not Action.NOTHING]
    return "\n".join(lines)


def _cell(state: State, event: Trigger) -> str:
    target, action = TABLE[state][event]
    if action is Action.NOTHING:
        return "=" if target is state else target.name
    return f"{target.name}: {action.name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the document is stale")
    check = parser.parse_args().check
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    new = f"{before}{BEGIN}\n\n{drawing()}\n\n{END}{after}"
    if check:
        if new != text:
            print(f"stale: {DOCUMENT.name}; run `make regenerate` and commit", file=sys.stderr)
        return int(new != text)
    DOCUMENT.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
