"""Has the process begin late, if it is one of dpgateway: see ``tools.late``."""

import os
import random
import sys
import time


def _late() -> None:
    draw = random.SystemRandom()  # not the process's own: it is seeded where a test wants the same lives again
    time.sleep(draw.random() * float(os.environ["DPGATEWAY_LATE"]) if draw.random() > 0.5 else 0.0)


_words = " ".join(sys.orig_argv)
if "multiprocessing.forkserver" in _words:  # tests.support.forked: each child is a process of its own
    os.register_at_fork(after_in_child=_late)
elif "dpgateway" in _words and "pytest" not in _words:
    _late()
