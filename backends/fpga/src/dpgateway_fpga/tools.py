"""Tools that program boards: their arguments, and how to read back a board's image. No shell is involved."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from dpgateway import refuse
from dpgateway.sysfs import ExpressionError, expression

PLACEHOLDERS: Mapping[str, str] = {
    "file": "a file with the image, which no other user can write",
    "text": "the content of the image's file, if that is one word: the name of an image elsewhere",
    "sha256": "the image's digest",
    "uuid": "the uuid in the header of the image, an xclbin file",
    "accelerator": "the id of the accelerator in the header of the image, a GBS file",
    "board": "the board's id",
    "address": "the board's address, else its id",
    "port": "the board's port",
    "segment": "of the address 0000:3b:00.0: 0000",
    "bus": "3b",
    "device": "00",
    "function": "0",
    "sysfs": "where the host's /sys is seen",
    "dfl_port": "the directory of the board's port in /sys, with DFL drivers",
}
_OF_IMAGES = frozenset({"file", "text", "sha256", "uuid", "accelerator"})


@dataclass(frozen=True, slots=True)
class Command:
    """A tool, by a preset or by its arguments."""

    preset: Literal["fpga-load-local-image", "fpgaconf", "openFPGALoader", "xrt-smi"] | None = field(
        default=None, metadata={"help": "a tool whose arguments are known"}
    )
    arguments: tuple[str, ...] = field(
        default=(), metadata={"help": "with a preset: more arguments, after the tool's name: [--board, arty]"}
    )
    argv: tuple[str, ...] = field(
        default=(), metadata={"help": "without a preset: the program and its arguments, with placeholders in braces"}
    )
    read: tuple[str, ...] = field(
        default=(), metadata={"help": "without a preset: a program that prints the board's image, if there is one"}
    )
    pattern: str = field(
        default=r"(?s)(.*)",
        metadata={"help": "the part of what `read` prints that counts: a regular expression's (RE2) group"},
    )
    expect: str = field(default="", metadata={"help": "what that part is when the board runs the image; placeholders"})
    files: Path = field(
        default=Path("/run/dpgateway/fpga-files"), metadata={"help": "where images are put for the tool, one at a time"}
    )
    env: Mapping[str, str] = field(
        default_factory=dict, metadata={"help": "the tool's environment, besides PATH and LC_ALL"}
    )

    def __post_init__(self) -> None:
        wrong: list[str] = []
        if self.preset is not None:
            wrong += [f"{key}: expected it without a preset" for key in ("argv", "read") if getattr(self, key)]
        elif self.arguments:
            wrong.append("arguments: expected it with a preset; without one write all of them into argv")
        if bool(self.read) != bool(self.expect):
            wrong.append("expect: expected it together with read, because the printed image is compared with it")
        if not self.files.is_absolute():
            wrong.append(f"files: expected an absolute path, found {str(self.files)!r}")
        try:
            if (groups := expression(self.pattern).groups) != 1:
                wrong.append(f"pattern: expected one group, found {groups}")
        except ExpressionError as error:
            wrong.append(f"pattern: {error}")
        for key, texts, known in (
            ("arguments", self.arguments, frozenset(PLACEHOLDERS)),
            ("argv", self.argv, frozenset(PLACEHOLDERS)),
            ("read", self.read, PLACEHOLDERS.keys() - _OF_IMAGES),
            ("expect", [self.expect], PLACEHOLDERS.keys() - {"file"}),
        ):
            wrong += _wrong_placeholders(key, texts, known)
        refuse(wrong)

    @property
    def tool(self) -> Command:
        """The command without a preset: its own, or the preset's with its ``arguments``."""
        if self.preset is None:
            return self
        known = PRESETS[self.preset]
        return replace(known, argv=(known.argv[0], *self.arguments, *known.argv[1:]))


def _wrong_placeholders(key: str, texts: Sequence[str], known: frozenset[str] | set[str]) -> Iterator[str]:
    for text in texts:
        try:
            names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
        except ValueError as error:
            yield f"{key}: expected placeholders in braces, found {text!r}: {error}; a brace itself is written twice"
            continue
        if wrong := [name for name in names if name not in known]:
            yield f"{key}: expected one of {', '.join(sorted(known))} in braces, found {wrong[0]!r}"
            continue
        try:
            text.format_map(dict.fromkeys(known, "0"))  # each of them is a text, the port, too
        except (ValueError, LookupError) as error:
            yield f"{key}: expected placeholders of texts in braces, found {text!r}: {error}"


PRESETS: Mapping[str, Command] = {
    # aws-fpga, sdk/userspace/fpga-mgmt-tools/README
    "fpga-load-local-image": Command(
        argv=("fpga-load-local-image", "-S", "{address}", "-I", "{text}"),
        read=("fpga-describe-local-image", "-S", "{address}", "-H"),
        pattern=r"(?m)^AFI\s+\S+\s+(\S+)\s+loaded\s",
        expect="{text}",
    ),
    # opae-sdk, doc/src/fpga_tools/fpgaconf; without --force it leaves an open port alone
    "fpgaconf": Command(
        argv=(
            "fpgaconf", "--segment", "0x{segment}", "--bus", "0x{bus}", "--device", "0x{device}",
            "--function", "0x{function}", "{file}",
        ),
        read=("cat", "{dfl_port}/afu_id"),
        expect="{accelerator}",
    ),
    # openFPGALoader(1): loads the FPGA's memory, not flash, by default; it can't read an image back
    "openFPGALoader": Command(argv=("openFPGALoader", "--ftdi-serial", "{address}", "{file}")),
    # XRT, src/runtime_src/core/tools/xbutil2, and core/pcie/driver/linux/xocl: xclbinuuid
    "xrt-smi": Command(
        argv=("xrt-smi", "program", "--device", "{address}", "--user", "{file}"),
        read=("cat", "{sysfs}/bus/pci/devices/{address}/xclbinuuid"),
        expect="{uuid}",
    ),
}  # fmt: skip
