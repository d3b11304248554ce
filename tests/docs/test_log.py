"""The reference of the log names each field, and the bounds are those of the code."""

from dpgateway.kit import log
from dpgateway.kit.log import lines
from dpgateway.resource.list_log import FEW
from tests.docs.pages import Page

PAGE = Page("reference/log.md")


def test_each_field_in_its_order():
    table = [line.split("|")[1].strip(" `") for line in PAGE.text.splitlines() if line.startswith("| `")]
    assert table == list(lines.FIELDS)


def test_the_bounds():
    assert f"more than {lines.LONGEST // 1024} KiB" in PAGE.text
    assert f"up to {log.MOST_WAITING // 1024**2} MiB" in PAGE.text
    assert f"more than {FEW} times in a minute" in PAGE.text
    assert lines.MOST_NAMED == 10
    assert "shorten lists to ten names" in PAGE.text
