"""The control file is obeyed as soon as it is there, however it got there."""

import threading
from datetime import timedelta

import pytest
from dpgateway_simulated import Fault
from dpgateway_simulated.control import parse

from dpgateway import DriverError

HOT = {"unhealthy": "hot", "indexes": [0]}


def _healthy(driver):
    return [device.health.ok for device in driver.devices()]


def test_obeys_an_existing_file(start, control):
    control.write(HOT)
    assert _healthy(start(control_file=control.path)) == [False, True]


def _in_place(control):
    control.path.write_text('{"faults": [{"absent": true}]}')


def _by_rename(control):
    control.write({"absent": True})


def _as_a_config_map(control):
    """As the kubelet's AtomicWriter does: the file links into a directory, which is replaced by renaming a link."""
    for name, faults in [("1", "[]"), ("2", '[{"absent": true}]')]:
        directory = control.path.parent / name
        directory.mkdir()
        (directory / control.path.name).write_text(f'{{"faults": {faults}}}')
    data, new = control.path.parent / "..data", control.path.parent / "..new"
    data.symlink_to("1")
    control.path.symlink_to(f"..data/{control.path.name}")
    new.symlink_to("2")
    new.rename(data)


@pytest.mark.parametrize("write", [_in_place, _by_rename, _as_a_config_map])
def test_a_file_that_comes_later_is_obeyed(start, control, recorder, write):
    driver = start(control_file=control.path)
    assert _healthy(driver) == [True, True]
    write(control)
    recorder.until(lambda: _healthy(driver) == [])


@pytest.mark.parametrize("lift", ["unlink", "rename", "empty"])
def test_without_the_file_all_is_well_again(start, control, recorder, lift):
    control.write(HOT)
    driver = start(control_file=control.path)
    if lift == "unlink":
        control.path.unlink()
    elif lift == "rename":
        control.path.rename(control.elsewhere)
    else:
        control.path.write_text("{}")
    recorder.until(lambda: all(_healthy(driver)))


def test_broken_file_changes_nothing(start, control, recorder):
    def reported(why):
        return any(f"{control.path} is wrong, the faults stay" in text and why in text for text in recorder.messages)

    control.write(HOT)
    driver = start(control_file=control.path)
    control.write({"unhealty": "cold"})
    recorder.until(lambda: reported("faults[0].unhealty: found an unknown key"))
    assert _healthy(driver) == [False, True]
    control.path.write_text("{")
    recorder.until(lambda: reported("Expecting property name"))
    assert _healthy(driver) == [False, True]
    control.write()
    recorder.until(lambda: all(_healthy(driver)))


def test_unreadable_file_changes_nothing(start, control, recorder):
    control.write(HOT)
    driver = start(control_file=control.path)
    control.path.write_bytes(b"\xff")
    recorder.until(lambda: any("can't read the control file" in text for text in recorder.messages))
    assert _healthy(driver) == [False, True]


def test_faults_of_file_and_options_add_up(start, control, recorder):
    driver = start(control_file=control.path, faults=(Fault(unhealthy="from the start", indexes=(1,)),))
    control.write(HOT)
    recorder.until(lambda: _healthy(driver) == [False, False])
    control.write()
    recorder.until(lambda: _healthy(driver) == [True, False])


def test_times_count_from_reading(start, control, recorder):
    driver = start(control_file=control.path)
    control.write({"absent": True, "lasts": "300ms", "every": "600ms"})  # one may be missed
    seen = []

    def gone_and_back():
        seen.append(len(driver.devices()))
        return 0 in seen and seen[-1] == 2

    recorder.until(gone_and_back)


def test_repetition_changes_nothing(start, control, recorder):
    control.write(HOT)
    start(control_file=control.path)
    changes = recorder.changes
    control.path.with_name("other").write_text("x")
    control.write(HOT)
    control.path.touch()
    control.write()
    recorder.until(lambda: recorder.changes > changes)
    assert recorder.changes == changes + 1


def test_refuses_unwatchable_directory(start, control):
    with pytest.raises(DriverError, match=r"^control_file: can't watch .*: No such file or directory"):
        start(control_file=control.path.parent / "nowhere" / "faults.json")


def test_a_directory_that_goes_is_reported(start, control, recorder, tmp_path):
    directory = tmp_path / "sub"
    directory.mkdir()
    (directory / "faults.json").write_text('{"faults": [{"absent": true}]}')
    driver = start(control_file=directory / "faults.json")
    threads = [thread for thread in threading.enumerate() if str(directory) in thread.name]
    directory.rename(tmp_path / "moved")
    threads[0].join(20)
    assert f"the control file's directory {directory} is gone; its last faults stay" in recorder.messages
    assert _healthy(driver) == []
    driver.close()


def test_every_kind_of_value():
    text = """{"faults": [
        {"call": "allocate", "after": "1.5s", "lasts": "2m", "every": "1h", "delay": "5ms", "hang": false, "error": "e",
         "devices": ["a"], "indexes": [0, 1]},
        {"extra": 2}
    ]}"""
    assert parse(text) == (
        Fault(
            call="allocate",
            after=timedelta(seconds=1.5),
            lasts=timedelta(minutes=2),
            every=timedelta(hours=1),
            delay=timedelta(milliseconds=5),
            error="e",
            devices=("a",),
            indexes=(0, 1),
        ),
        Fault(extra=2),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected JSON, found an empty file"),
        ("{", "Expecting property name"),
        ("[]", "^found an empty list, expected a mapping with the keys faults$"),
        ('{"fault": []}', "^fault: found an unknown key, expected one of faults; did you mean faults\\?$"),
        ('{"faults": {}}', "^faults: found an empty mapping, expected a list of mapping"),
        ('{"faults": [{"absent": 1}]}', r"^faults\[0\]\.absent: found 1, expected true or false; write true$"),
        (
            '{"faults": [{"absent": true, "devices": "a"}]}',
            r'^faults\[0\]\.devices: found "a", expected a list of string; write \["a"\]$',
        ),
        (
            '{"faults": [{"absent": true, "after": 5}]}',
            r"^faults\[0\]\.after: found 5, expected a duration: .*; write 5s$",
        ),
        ('{"faults": [{"absent": true}, {"extra": -1}]}', r"^faults\[1\]\.extra: found -1, expected nothing below 0$"),
        (
            '{"faults": [{"call": "start", "hang": true}]}',
            r'^faults\[0\]\.call: found "start", expected list or allocate or prepare$',
        ),
    ],
)
def test_what_cannot_be_understood_is_told(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)
