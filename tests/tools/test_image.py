"""What the image is made of comes from apt, whose index may be old or missing."""

import subprocess

import pytest

from tools.image.rootfs import download

APT = """#!/bin/sh
echo "$*" >>"$0.calls"
case "$1" in
update) touch "$0.index" ;;
download) [ -e "$0.index" ] && touch {downloads} ;;
esac
"""


@pytest.fixture
def apt(tmp_path, monkeypatch):
    """Stands on PATH for apt-get."""
    program = tmp_path / "bin" / "apt-get"
    program.parent.mkdir()
    program.write_text(APT.format(downloads="one.deb"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return program


def calls(apt):
    return [line.split()[0] for line in apt.with_name("apt-get.calls").read_text().splitlines()]


def test_makes_a_missing_index(apt, tmp_path):
    for _ in range(2):
        download(["one"], tmp_path)
    assert (tmp_path / "one.deb").exists()
    assert calls(apt) == ["download", "update", "download", "download"]


def test_what_can_not_be_downloaded_ends_it(apt, tmp_path):
    apt.write_text(APT.format(downloads="/dev/null/one.deb"))
    with pytest.raises(subprocess.CalledProcessError, match="download"):
        download(["one"], tmp_path)
