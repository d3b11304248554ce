from dataclasses import fields
from pathlib import Path

from dpgateway_simulated import Fault, SimulatedOptions

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_every_option_is_documented():
    missing = [
        field.name for kind in (SimulatedOptions, Fault) for field in fields(kind) if f"`{field.name}`" not in README
    ]
    assert missing == []
