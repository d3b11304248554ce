"""The files that the design pages name are there."""

import re

import pytest

from tests.docs.pages import DOCS, Page

SOURCE = DOCS.parent / "src/dpgateway"


@pytest.mark.parametrize(("page", "least"), [("kubelet", 10), ("holdings", 8)])
def test_each_file_in_brackets_is_below_the_gateways_source(page, least):
    brackets = re.findall(r"\[(`[^]]+`)\]", Page(f"design/{page}.md").text)
    files = [file for bracket in brackets for file in re.findall(r"`([^`]+)`", bracket)]
    assert len(files) >= least
    assert [file for file in files if not (SOURCE / file).is_file()] == []
