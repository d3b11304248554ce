"""Tests of a value, as options of a ``Match`` and of drivers. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from dpgateway.errors import refuse
from dpgateway.sysfs.patterns import ExpressionError, expression, value_matches
from dpgateway.sysfs.values import NoValue, Value, as_number

_SINGLE = {"single": True}


def _about(text: str, **more: object) -> Any:  # noqa: ANN401  a field's metadata
    return {"help": text, **more}


@dataclass(frozen=True, slots=True)
class Test:
    """Conditions on one value, all of which must hold. An absent or unreadable value passes only ``present`` and
    ``or_absent``: it isn't 0, and it passes no ``none_of``.
    """

    __test__: ClassVar[bool] = False  # pytest takes it for a test otherwise
    short_form: ClassVar[str] = "glob"

    glob: tuple[str, ...] = field(
        default=(), metadata=_about("one of these patterns matches, as in udev's rules: *, ?, [...], a|b", **_SINGLE)
    )
    exact: tuple[str, ...] = field(default=(), metadata=_about("it equals one of these", **_SINGLE))
    none_of: tuple[str, ...] = field(
        default=(), metadata=_about("it has a value, which none of these patterns matches", **_SINGLE)
    )
    regex: str | None = field(default=None, metadata=_about("the regular expression (RE2) matches the whole value"))
    at_least: int | None = field(default=None, metadata=_about("it is a number, 12 or 0x0c, and not smaller"))
    at_most: int | None = field(default=None, metadata=_about("it is a number, 12 or 0x0c, and not greater"))
    present: bool | None = field(default=None, metadata=_about("true: it is there; false: it is absent"))
    or_absent: bool = field(default=False, metadata=_about("if it is absent, that is fine, too"))

    def __post_init__(self) -> None:
        wrong: list[str] = []
        asks = any(getattr(self, name) not in {None, ()} for name in self.__slots__ if name != "or_absent")
        if not asks:
            wrong.append("expected a test, found none")
        elif self.present is not None and self.or_absent:
            wrong.append("or_absent: expected it without present, because together they say nothing")
        for text in self.glob:
            if text.startswith(("==", "!=")):
                expected = "expected the value alone, or none_of for what udev's rules write as !="
                wrong.append(f"{expected}, found {text!r}")
        if self.regex is not None:
            try:
                expression(self.regex)
            except ExpressionError as error:
                wrong.append(f"regex: {error}")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            wrong.append(f"at_least: expected at most {self.at_most}, as at_most says, found {self.at_least}")
        refuse(wrong)

    def __str__(self) -> str:
        """The expectation, for error messages."""
        said = (
            (self.glob, ", ".join(self.glob) if len(self.glob) < 2 else f"one of {', '.join(self.glob)}"),
            (self.exact, f"exactly {' or '.join(self.exact)}"),
            (self.none_of, f"none of {', '.join(self.none_of)}"),
            (self.regex is not None, f"a match of {self.regex}"),
            (self.at_least is not None, f"at least {self.at_least}"),
            (self.at_most is not None, f"at most {self.at_most}"),
            (self.present is True, "something"),
            (self.present is False, "nothing"),
        )
        return " and ".join(text for wanted, text in said if wanted) + (" or nothing" if self.or_absent else "")

    def passes(self, value: Value) -> bool:
        unbounded = self.at_least is None and self.at_most is None
        if isinstance(value, NoValue):
            if value.absent and self.or_absent:
                return True
            # a condition on the value fails without one; an unreadable value counts as present
            if self.glob or self.exact or self.none_of or self.regex is not None or not unbounded:
                return False
            return self.present is not value.absent
        number = None if unbounded else as_number(value)
        return (
            self.present is not False
            and (not self.glob or any(map(partial(value_matches, value), self.glob)))
            and (not self.exact or value in self.exact)
            and (not self.none_of or not any(map(partial(value_matches, value), self.none_of)))
            and (self.regex is None or expression(self.regex).fullmatch(value))
            and (self.at_least is None or (number is not None and number >= self.at_least))
            and (self.at_most is None or (number is not None and number <= self.at_most))
        )
