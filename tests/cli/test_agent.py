"""From the configuration to the running gateway: what ends a start, and with which exit code."""

import sys

from dpgateway.cli.agent import RunOptions, serve
from dpgateway.cli.options import Settings
from dpgateway.daemon.config_reader import ConfigReader
from dpgateway.daemon.files import FileWatch


def test_a_disk_that_hangs_is_no_wrong_configuration(tmp_path, monkeypatch, caplog):
    """With exit code 2 systemd would never start it again."""
    config, hangs = tmp_path / "config.yaml", tmp_path / "python"
    hangs.write_text("#!/bin/sh\nexec sleep 1000\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hangs))
    reader, files = ConfigReader(config, slow=0.1, patience=0.1), FileWatch(config)
    options = RunOptions(tmp_path / "control.sock", 0.0, "", strict_config=False)
    assert serve(Settings(config, "node", None, "auto", "INFO"), options, reader, files) == 1
    assert "expected files that answer" in caplog.text
