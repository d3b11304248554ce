from pathlib import Path

import pytest

from tests.support.configurations import Write


@pytest.fixture
def config(tmp_path: Path) -> Write:
    def write(text: str, name: str = "config.yaml") -> Path:
        file = tmp_path / name
        file.write_text(text)
        return file

    return write
