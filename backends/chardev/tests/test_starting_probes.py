"""Probes on a node that has no thread left."""

import os
import threading

import pytest
from dpgateway_chardev.probing import Check, Prober
from dpgateway_chardev.settings import Probes

from dpgateway import DriverError
from dpgateway.testing import Recorder
from tests.support.counting import descriptors


def test_probes_begin_once_there_is_a_thread() -> None:
    prober, checks = Prober("probes", Probes(open=True), lambda: None), {"a": [Check("opening", ("/bin/true",))]}
    before, size = descriptors(), threading.stack_size(2**48)
    try:
        for _ in range(100):
            with pytest.raises(DriverError, match="there is no thread for it"):
                prober.watch(checks)
    finally:
        threading.stack_size(size)
    assert descriptors() < before + 50
    prober.watch(checks)
    while prober.reason("a") is not None:
        os.sched_yield()
    prober.close()


def test_probes_without_threads_are_told_and_repeated() -> None:
    recorder = Recorder()
    prober = Prober("probes", Probes(open=True), recorder.context().changed)
    prober.watch({"a": [Check("opening", ("/bin/true",))]})
    recorder.until(lambda: prober.reason("a") is None)
    size = threading.stack_size(2**48)
    try:
        prober.watch({"b": [Check("opening", ("/bin/true",))]})
        recorder.until(lambda: str(prober.reason("b")).startswith("opening: there is no thread for it: "))
    finally:
        threading.stack_size(size)
    recorder.until(lambda: prober.reason("b") is None)
    prober.close()
