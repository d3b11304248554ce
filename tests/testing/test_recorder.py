import threading

import pytest

from dpgateway.testing import Recorder


def test_records_changes_and_messages(caplog):
    recorder = Recorder()
    context = recorder.context("example.com/a", node_name="n1")
    assert (context.resource, context.node_name, recorder.changed.is_set()) == ("example.com/a", "n1", False)
    context.changed()
    context.changed()
    context.log.warning("board %s", 3)
    context.log.debug("and more")
    assert (recorder.changes, recorder.changed.is_set(), recorder.messages) == (2, True, ["board 3", "and more"])
    assert caplog.messages[0] == "board 3"


def test_a_driver_learns_what_containers_hold():
    assert list(Recorder().context().held()) == []
    assert list(Recorder().context(held=["a+c"]).held()) == ["a+c"]


def test_until_looks_again_after_each_change():
    recorder = Recorder()
    context = recorder.context()
    changers = [threading.Thread(target=context.changed) for _ in range(3)]

    def condition():
        if changers:
            changers.pop().start()
        return not changers and recorder.changes == 3

    assert recorder.until(condition) is True
    assert recorder.changes == 3


def test_until_looks_again_after_each_message():
    recorder = Recorder()
    context = recorder.context()
    speaker = threading.Thread(target=context.log.info, args=("done",))

    def condition():
        if not recorder.messages and not speaker.is_alive():
            speaker.start()
        return recorder.messages == ["done"]

    recorder.until(condition)


def test_until_fails_when_the_condition_never_holds():
    with pytest.raises(AssertionError, match=r"wasn't met within 0\.01 s"):
        Recorder().until(lambda: False, 0.01)


def test_each_recorder_has_its_own_log():
    first, second = Recorder(), Recorder()
    first.context().log.warning("one")
    assert (first.messages, second.messages) == (["one"], [])
