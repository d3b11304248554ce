from benchmarks.__main__ import kept
from benchmarks.budgets import BUDGETS, BY_DEVICES, BY_RESOURCES, Budget
from benchmarks.processes import ROOT
from benchmarks.report import Report

FIGURES = ROOT / "benchmarks/results.json"


def test_budget_verdicts():
    budget = Budget("waiting", "wait.p50.ms", "ms", 10)
    assert budget.met({"wait.p50.ms": 10.0}) is True
    assert budget.met({"wait.p50.ms": 10.1}) is False
    assert budget.met({}) is None


def test_limit_grows_with_bare_handlers():
    budget = Budget("waiting", "wait.p50.ms", "ms", 10, "bare.p50.ms", times=1.2)
    assert budget.limit_of({"bare.p50.ms": 5.0}) == 10
    assert budget.met({"wait.p50.ms": 23.9, "bare.p50.ms": 20.0}) is True
    assert budget.met({"wait.p50.ms": 24.1, "bare.p50.ms": 20.0}) is False


def test_budgets_have_own_figures():
    assert len({budget.figure for budget in BUDGETS}) == len(BUDGETS)


def test_table_of_measured_budgets():
    seen = Report(
        "a machine", {"allocate.ratio.x": 1.59, "idle.gateway.percent": 0.25, "idle.bare.percent": 0.04}, "none"
    )
    lines = seen.table().splitlines()
    assert len(lines) == 3
    assert lines[1].endswith("met")
    assert lines[2].endswith("missed")
    assert "0.04 % of a core" in lines[2]
    assert [budget.figure for budget in seen.missed()] == ["idle.gateway.percent"]


def test_page_of_some_measurements(tmp_path):
    page = tmp_path / "page.md"
    figures = {"allocate.over_threaded.us": 200.0, "allocate.threaded_over.us": 120.4}
    Report("a machine", figures, "none").write_page(page)
    assert list(tmp_path.iterdir()) == [page]
    assert "- Allocate, p50, more than bare with a thread: each call goes to a thread" in page.read_text()
    assert "take 120 µs more than others" in page.read_text()


def test_page_matches_last_run():
    """`python -m benchmarks --rewrite` makes it so."""
    assert Report.read(FIGURES).page("benchmarks.png") == (ROOT / "docs/benchmarks.md").read_text()


def test_figures_have_words():
    names = {name.partition("@")[0] for name in Report.read(FIGURES).figures if "@" in name}
    assert names == BY_DEVICES.keys() | BY_RESOURCES.keys()


def test_update_keeps_other_figures():
    last = {"flip.bare.ms@1": 1.0, "flip.gone.ms": 2.0, "first_list.bare.ms@1": 3.0}
    assert kept(last, ["flip"]) == {"first_list.bare.ms@1": 3.0}
