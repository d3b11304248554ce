"""Every page is in the index, and every link leads somewhere."""

import re

import pytest

from tests.docs.pages import DOCS

PAGES = sorted(DOCS.rglob("*.md"))
ROOT = DOCS.parent


def anchors(page):
    """As they are made of headings where the pages are shown."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("index", [DOCS / "README.md", ROOT / "README.md"], ids=["docs", "project"])
def test_every_page_is_in_the_index(index):
    linked = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)", index.read_text())}
    assert set(PAGES) - {DOCS / "README.md"} <= linked


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
