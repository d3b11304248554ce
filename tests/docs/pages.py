"""What a page of the documentation has for its reader to do: files to write, and commands to run in a shell."""

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"(?:^`(?P<file>[^`\n]+)`:\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
VARIES = (
    (re.compile(r"^ +\d+\.\d{3}  ", re.MULTILINE), "TIME  "),
    (re.compile(r"dpgateway/[0-9a-f]{16}-\d+\.sock"), "SOCKET"),
    (re.compile(r"^[\d-]+T[\d:.]+Z ", re.MULTILINE), "TIMESTAMP "),
    (re.compile(r"\b\d+\.\d+ ?s\b"), "SECONDS"),
    (re.compile(r"\b\d+ ms\b"), "MILLISECONDS"),
    (re.compile(r"\b\d+s\b"), "AGE"),
    (re.compile(r"(?<=[= ])/\S*/first-hour/"), "PLACE/"),
    (re.compile(r"\bon node \S+"), "on node NAME"),
    (re.compile(r"\bpid \d+"), "pid PID"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)
"""What differs from run to run, and on a reader's machine."""


@dataclass(frozen=True)
class Commands:
    """A block of commands, and the output that the page shows next."""

    text: str
    output: str | None


class Page:
    """A file under docs/."""

    def __init__(self, path: str) -> None:
        self.text = (DOCS / path).read_text()
        self._blocks = list(FENCE.finditer(self.text))

    @property
    def files(self) -> dict[str, str]:
        """The blocks that come after a line with nothing but a file's name and a colon."""
        return {block["file"]: block["text"] for block in self._blocks if block["file"]}

    @property
    def commands(self) -> list[Commands]:
        """The blocks in `sh`; a block of plain text that follows is what they print."""
        following = [*self._blocks[1:], None]
        return [
            Commands(block["text"], after["text"] if after and after["kind"] == "text" else None)
            for block, after in zip(self._blocks, following, strict=True)
            if block["kind"] == "sh"
        ]

    def write_files(self, directory: Path) -> None:
        for name, text in self.files.items():
            file = directory / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


def check_output(shown: str, found: str) -> None:
    """A line of dots stands for any lines, and nothing is left out without one."""
    parts = [plain(part).strip("\n") for part in re.split(r"^\s*\.\.\.\n", shown, flags=re.MULTILINE)]
    pattern = r"(?:.*\n)*?".join(re.escape(part) + "\n" if part else "" for part in parts)
    assert re.fullmatch(pattern, plain(found).strip("\n") + "\n"), f"expected\n{shown}\nfound\n{found}"


def plain(text: str) -> str:
    for pattern, name in VARIES:
        text = pattern.sub(name, text)
    return text
