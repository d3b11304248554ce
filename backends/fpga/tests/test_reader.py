"""A read that hangs is told, and holds up nobody for long."""

import threading

import pytest
from dpgateway_fpga.programmers import BoardState
from dpgateway_fpga.reader import Hung, PatientReader

GOOD = BoardState("operating", operating=True)


def test_what_the_board_says_now():
    answers = iter([BoardState("write"), GOOD])
    reader = PatientReader("it", lambda: next(answers))
    assert [reader.read(), reader.read()] == [BoardState("write"), GOOD]


def test_reader_raises_its_error():
    def read():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        PatientReader("it", read).read()


def test_hanging_read_is_a_fault():
    gate, ended, began = threading.Event(), threading.Event(), []

    def read():
        began.append(gate.wait(20))
        return GOOD

    reader = PatientReader("it", read, ended.set, patience=2)  # in which a busy machine begins a thread
    for _ in range(3):
        with pytest.raises(Hung, match=r"^a read of it hangs, which began "):
            reader.read()
    gate.set()
    assert ended.wait(20)
    assert reader.read() == GOOD
    assert len(began) == 2


def test_earlier_read_is_no_answer():
    gate, reading, answers = threading.Event(), threading.Event(), iter([BoardState("write"), GOOD])

    def read():
        answer = next(answers)
        reading.set()
        gate.wait(20)
        return answer

    reader, found = PatientReader("it", read, patience=20), []
    first = threading.Thread(target=reader.read)
    first.start()
    assert reading.wait(20)
    second = threading.Thread(target=lambda: found.append(reader.read()))
    second.start()
    gate.set()
    first.join(20)
    second.join(20)
    assert found == [GOOD]
