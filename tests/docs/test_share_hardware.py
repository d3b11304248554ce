"""Each configuration of the page is one that the gateway takes, and whose resources share what they say."""

import subprocess

import pytest

from tests.docs.pages import Page
from tests.support.gateway import COMMAND

PAGE = Page("how-to/share-hardware.md")
CONFIGURATIONS = sorted(name for name in PAGE.files if name.endswith(".yaml"))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_is_valid_and_warns_of_nothing(name, tmp_path):
    PAGE.write_files(tmp_path)
    check = [*COMMAND, "check", "--config", tmp_path / name, "--node-name", "node"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout
