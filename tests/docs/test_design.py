"""The files and tests that the design pages name are there."""

import re

import pytest

from tests.docs.pages import DOCS, Page

SOURCE = DOCS.parent / "src/dpgateway"


@pytest.mark.parametrize(("page", "least"), [("kubelet", 10), ("holdings", 8)])
def test_each_file_in_brackets_exists(page, least):
    brackets = re.findall(r"\[(`[^]]+`)\]", Page(f"design/{page}.md").text)
    files = [file for bracket in brackets for file in re.findall(r"`([^`]+)`", bracket)]
    assert len(files) >= least
    assert [file for file in files if not (SOURCE / file).is_file()] == []


def test_each_kubernetes_case_names_a_test():
    lines = Page("design/kubernetes-e2e.md").text.splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("| ")]
    cases = [row for row in rows if row[0].strip() != "case"]
    assert len(cases) >= 30
    for case, test, seen in cases:
        path, _, name = test.strip().strip("`").partition("::")
        there = path and re.search(rf"^(async )?def {name}\(", (DOCS.parent / path).read_text(), re.MULTILINE)
        assert there or (not path and seen.strip()), case
