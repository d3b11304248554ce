"""The version has one place, and all others agree with it."""

import shutil

import pytest

from tools.packages import ROOT
from tools.version import PLACES, VersionError, release, write


@pytest.fixture
def clone(tmp_path):
    for name in (*PLACES, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def begin(clone, heading):
    changes = clone / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace("\n## ", f"\n## {heading}\n\n- **New**: this.\n\n## ", 1))


def test_all_places_agree():
    version, changes = release()
    assert version
    assert "\n## " not in changes


def test_a_new_version_is_written_everywhere(clone):
    write("12.34.56", clone)
    begin(clone, "12.34.56, 2027-01-31")
    assert release(clone) == ("12.34.56", "- **New**: this.\n")


@pytest.mark.parametrize("name", PLACES)
def test_a_place_with_another_version_is_named(clone, name):
    kept = (clone / name).read_text()
    write("12.34.56", clone)
    (clone / name).write_text(kept)
    begin(clone, "12.34.56, 2027-01-31")
    with pytest.raises(VersionError, match=f"{name}"):
        release(clone)


def test_changes_of_another_version_are_named(clone):
    begin(clone, "12.34.56, 2027-01-31")
    with pytest.raises(VersionError, match=r"CHANGELOG.md begins with '12.34.56, 2027-01-31'"):
        release(clone)


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3rc1"])
def test_a_version_that_one_of_them_refuses_is_refused(clone, version):
    with pytest.raises(VersionError, match="expected three numbers"):
        write(version, clone)
