"""The files that the design page names are there."""

import re

from tests.docs.pages import DOCS, Page

SOURCE = DOCS.parent / "src/dpgateway"


def test_each_file_in_brackets_is_below_the_gateways_source():
    brackets = re.findall(r"\[(`[^]]+`)\]", Page("design/kubelet.md").text)
    files = [file for bracket in brackets for file in re.findall(r"`([^`]+)`", bracket)]
    assert len(files) > 10
    assert [file for file in files if not (SOURCE / file).is_file()] == []
