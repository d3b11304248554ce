"""Whatever ends the gateway while it makes sure that a board runs a bitstream, the next attempt is right."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

KILLED = Path(__file__).with_name("killed.py")
AES = hashlib.sha256(b"aes").hexdigest()


def test_killed_at_any_step(tmp_path):
    done = subprocess.run([sys.executable, KILLED, tmp_path], stdout=subprocess.PIPE, check=True, timeout=200)
    *killed, whole = map(json.loads, done.stdout.splitlines())
    for one in killed:
        before, after = one["before"], one["after"]
        again = before["journal"] != "loaded"
        assert after["programmed"] == before["programmed"] + again, one
        assert (after["board"], after["journal"], after["left"]) == (AES, "loaded", ["b.json", "b.lock"]), one
        assert before["board"] in (AES, "") or before["journal"] == "programming", one
    assert whole["lived"]
    assert whole["after"]["programmed"] == 1
    seen = {(one["before"]["journal"], one["before"]["board"]) for one in killed}
    assert seen == {("", ""), ("programming", ""), ("programming", "half"), ("programming", AES), ("loaded", AES)}
