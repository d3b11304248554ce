import pytest

from tests.support.drivers import Site


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts distributions with drivers on the path."""
    monkeypatch.syspath_prepend(tmp_path)
    return Site(tmp_path)
