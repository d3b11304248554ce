"""The process's memory, in a process of its own: the settings are for good."""

import subprocess
import sys

from dpgateway.kit.memory import give_back
from tests.support.heap import hole, resident

# Where a thread's memory comes from: the first thread's heap is the one that grows by brk.
PROGRAM = """
import ctypes, threading
from pathlib import Path
from dpgateway.kit.memory import share_one_heap

if {share}:
    share_one_heap()
malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
found = []
thread = threading.Thread(target=lambda: found.append(malloc(1000)))
thread.start()
thread.join()
heap = next(line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("[heap]"))
begin, end = (int(place, 16) for place in heap.split("-"))
print(begin <= found[0] < end)
"""


def in_first_heap(*, share: bool) -> bool:
    program = PROGRAM.format(share=share)
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return answer.stdout == "True\n"


def test_all_threads_share_the_first_heap() -> None:
    assert in_first_heap(share=True)


def test_without_it_each_thread_has_its_own() -> None:
    assert not in_first_heap(share=False)


def test_what_is_there_at_the_start_is_not_looked_at_again() -> None:
    program = """
import gc
from dpgateway.kit.memory import keep_what_is_there

before = len(gc.get_objects())
keep_what_is_there()
print(gc.get_freeze_count() > before / 2, len(gc.get_objects()) < before / 10)
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "True True\n"


def test_free_memory_amid_the_heap_is_given_back() -> None:
    with hole():
        full = resident()
        give_back()
        assert full - resident() > 15
