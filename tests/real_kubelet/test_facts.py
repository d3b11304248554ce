"""The simulator is as every release is, and the page about the releases tells the truth."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.real_kubelet.facts import FACTS, GROUPS, page
from tests.real_kubelet.facts.observing import ENGINES, Key, observe_all
from tests.real_kubelet.programs import RELEASES

pytestmark = pytest.mark.xdist_group("facts")  # `observed` once
DOCUMENT = Path(__file__).parents[2] / "docs/reference/kubelets.md"


@pytest.fixture(scope="session")
def observed(request: pytest.FixtureRequest) -> dict[Key, str]:
    """All that the tests of this run ask for, at once: some facts wait for the kubelet's own 10 seconds."""
    asked = {
        (str(item.callspec.params["release"]), str(item.callspec.params["fact"]))
        for item in request.session.items
        if isinstance(item, pytest.Function) and "observed" in item.fixturenames
    }
    return asyncio.run(observe_all((engine, *one) for one in sorted(asked) for engine in ENGINES))


@pytest.fixture(scope="session")
def documented() -> dict[tuple[str, str], str]:
    return page.read(DOCUMENT.read_text())


def test_one_worker_observes_all_facts(request: pytest.FixtureRequest) -> None:
    """pytest-xdist 3.8 groups by the end of a test's name; pytest 9.2 ignores it, and whole nodes get into each other's
    way.
    """
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    assert alone or request.node.nodeid.endswith("@facts")


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("release", RELEASES)
def test_simulated_and_documented_as_real(
    observed: dict[Key, str], documented: dict[tuple[str, str], str], release: str, fact: str
) -> None:
    real = observed["real", release, fact]
    assert not real.startswith("can't be told")
    assert (observed["simulated", release, fact], documented[release, fact]) == (real, real)


def test_the_page_is_what_is_written_of_it(documented: dict[tuple[str, str], str]) -> None:
    assert page.write(documented) == DOCUMENT.read_text()
    headings = [page.heading(fact) for fact in FACTS.values()]
    assert len(set(headings)) == len(headings) == sum(map(len, GROUPS.values()))
