import pytest

from dpgateway.importing import Source


@pytest.fixture
def read(tmp_path):
    """Reads another plugin's configuration, from a file called theirs."""

    def read(text):
        (tmp_path / "theirs").write_text(text)
        return Source.read(tmp_path / "theirs")

    return read
