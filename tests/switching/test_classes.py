"""Which DeviceClass counts for a resource, and which selectors are understood."""

from __future__ import annotations

from typing import Any

import pytest

from dpgateway.switching.classes import counting, why_not

DRIVER, NAME = "dra.example.com", "example.com/thing"
DRIVERS, RESOURCES = f'device.driver == "{DRIVER}"', f'device.attributes["{DRIVER}"].resource == "{NAME}"'
CHART = f"{DRIVERS} && {RESOURCES}"


def device_class(name: str, *expressions: str, resource: str | None = NAME, made: int = 0) -> dict[str, Any]:
    selectors = [{"cel": {"expression": text}} for text in expressions]
    spec = {"selectors": selectors} | ({"extendedResourceName": resource} if resource else {})
    return {"metadata": {"name": name, "creationTimestamp": f"2026-01-01T00:00:{made:02}Z"}, "spec": spec}


@pytest.mark.parametrize(
    ("found", "counts"),
    [
        ([], None),
        ([("a", "example.com/other", 0), ("b", None, 0)], None),
        ([("a", NAME, 0), ("b", NAME, 1)], "b"),
        ([("a", NAME, 1), ("b", NAME, 0)], "a"),
        ([("b", NAME, 1), ("a", NAME, 1), ("c", NAME, 0)], "a"),
    ],
)
def test_the_newest_counts_or_else_the_first(found: list[tuple[str, str | None, int]], counts: str | None) -> None:
    one = counting([device_class(name, CHART, resource=it, made=made) for name, it, made in found], NAME)
    assert (None if one is None else one["metadata"]["name"]) == counts


@pytest.mark.parametrize(
    "expressions",
    [
        (CHART,),
        (CHART.replace('"', "'"),),
        (CHART.replace(" ", ""),),
        (f"\n  {CHART.replace(' && ', chr(10) + '  && ')}\n",),
        (f"({CHART})",),
        (f"({DRIVERS}) && ({RESOURCES})",),
        (f"{RESOURCES} && {DRIVERS}",),
        (DRIVERS, RESOURCES),
        (CHART.replace("attributes[", "attributes[ ").replace("].", " ] . "),),
    ],
)
def test_the_charts_form_however_it_is_written(expressions: tuple[str, ...]) -> None:
    assert why_not([device_class("c", *expressions)], NAME, NAME, DRIVER) == ""


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        DRIVERS,
        RESOURCES,
        CHART.replace("&&", "||"),
        f"{CHART} || true",
        f"!({CHART})",
        f'{CHART} && device.attributes["{DRIVER}"].model == "x"',
        CHART.replace(NAME, "example.com/other"),
        CHART.replace("==", "!="),
        f'{DRIVERS} && device.attributes["other.example"].resource == "{NAME}"',
        f"({DRIVERS}) || ({RESOURCES})",
        f'{CHART} && (true || device.driver == "x")',
        "",
    ],
)
def test_what_may_select_other_devices(expression: str) -> None:
    text = why_not([device_class("c", expression)], NAME, NAME, DRIVER)
    assert text.startswith(f"DeviceClass c of {NAME} may select other devices: found ")
    assert text.endswith(f"expected the selector {CHART}")


def test_a_class_without_selectors_selects_everything() -> None:
    assert "found no selector" in why_not([device_class("c")], NAME, NAME, DRIVER)


def test_another_driver_is_named() -> None:
    one = device_class("c", CHART.replace(DRIVER, "other.example"))
    assert why_not([one], NAME, NAME, DRIVER) == (
        f"DeviceClass c of {NAME} selects driver other.example: expected {DRIVER}"
    )


def test_no_class() -> None:
    assert why_not([device_class("c", CHART, resource="example.com/other")], NAME, NAME, DRIVER).startswith(
        f"no DeviceClass has the extendedResourceName {NAME}"
    )


def test_a_resource_with_a_long_name_has_another_value() -> None:
    one = device_class("c", CHART.replace(NAME, "thing-12345678"))
    assert why_not([one], NAME, "thing-12345678", DRIVER) == ""
    assert why_not([one], NAME, NAME, DRIVER)
