"""A read that hangs is told, and holds up nobody for long."""

import threading

import pytest
from dpgateway_fpga.programmers import Reading
from dpgateway_fpga.reader import Hung, Reader

GOOD = Reading("operating", operating=True)


def test_what_the_board_says_now():
    answers = iter([Reading("write"), GOOD])
    reader = Reader("it", lambda: next(answers))
    assert [reader.read(), reader.read()] == [Reading("write"), GOOD]


def test_whatever_a_read_raises_is_raised_to_who_asked():
    def read():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Reader("it", read).read()


def test_a_read_that_hangs_is_a_fault_until_it_ends_and_nobody_waits_for_it_twice():
    gate, ended, began = threading.Event(), threading.Event(), []

    def read():
        began.append(gate.wait(20))
        return GOOD

    reader = Reader("it", read, ended.set, patience=0.5)
    for _ in range(3):
        with pytest.raises(Hung, match=r"^a read of it hangs, which began "):
            reader.read()
    gate.set()
    assert ended.wait(20)
    assert reader.read() == GOOD
    assert len(began) == 2


def test_a_read_that_began_before_somebody_asked_is_not_his_answer():
    gate, reading, answers = threading.Event(), threading.Event(), iter([Reading("write"), GOOD])

    def read():
        answer = next(answers)
        reading.set()
        gate.wait(20)
        return answer

    reader, found = Reader("it", read, patience=20), []
    first = threading.Thread(target=reader.read)
    first.start()
    assert reading.wait(20)
    second = threading.Thread(target=lambda: found.append(reader.read()))
    second.start()
    gate.set()
    first.join(20)
    second.join(20)
    assert found == [GOOD]
