"""The device-plugins directory: cleaning it at a start, and the checkpoint file."""

import os
import stat
import tempfile
from pathlib import Path

from dpgateway_simulator.kubelet import checkpoint
from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.ledger import DeviceLedger

CHECKPOINT = "kubelet_internal_checkpoint"
SOCKET = "kubelet.sock"


def prepare(directory: Path, behaviour: Behaviour) -> None:
    """Creates the directory if necessary, and deletes every file but the checkpoint; from 1.33 on only sockets.
    Directories and their content stay.
    """
    directory.mkdir(mode=behaviour.directory_mode, parents=True, exist_ok=True)
    # The directory is listed once, so a file created meanwhile survives.
    for path in tuple(directory.iterdir()):
        mode = path.lstat().st_mode
        if path.name == CHECKPOINT or stat.S_ISDIR(mode):
            continue
        if behaviour.cleans == "files" or stat.S_ISSOCK(mode):
            path.unlink()


def save(directory: Path, behaviour: Behaviour, ledger: DeviceLedger) -> None:
    """Writes the checkpoint: up to 1.9 in place with mode 0644, later by rename of `.<random>` with mode 0600."""
    registered = {resource: sorted(ids) for resource, ids in ledger.healthy.items()}
    text = checkpoint.write(behaviour.checkpoint_writes, ledger.holdings.values(), registered)
    if not behaviour.checkpoint_renamed:
        (directory / CHECKPOINT).write_text(text)
        return
    number, name = tempfile.mkstemp(prefix=".", dir=directory)
    with os.fdopen(number, "w") as file:
        file.write(text)
    Path(name).rename(directory / CHECKPOINT)


def load(directory: Path, behaviour: Behaviour) -> checkpoint.Checkpoint:
    """The checkpoint as this release reads it; empty if there is no file. Raises CorruptError."""
    try:
        text = (directory / CHECKPOINT).read_text()
    except FileNotFoundError:
        return checkpoint.Checkpoint()
    return checkpoint.read(behaviour.checkpoint_reads, text)
