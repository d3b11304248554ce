import itertools

import pytest

from dpgateway import Allocation, Busy, Device, DeviceUnavailable, DriverError
from dpgateway.drivers import answers
from dpgateway.errors import DriverFault

A, B, C = Device("a"), Device("b"), Device("c")


@pytest.mark.parametrize(
    "answer", [[A, B], (A, B), {"x": A, "y": B}.values(), iter([A, B])], ids=["list", "tuple", "view", "iterator"]
)
def test_devices_may_come_in_any_iterable(answer):
    assert answers.devices(answer) == (A, B)


def test_no_devices_are_an_answer():
    assert answers.devices(iter(())) == ()


@pytest.mark.parametrize("answer", [None, 3, A, "ab", b"ab"], ids=repr)
def test_devices_that_are_no_iterable_are_refused_saying_what_was_returned(answer):
    with pytest.raises(DriverFault, match=r"devices\(\) returned .*, expected devices"):
        answers.devices(answer)


@pytest.mark.parametrize("wrong", ["a", None, {"id": "a"}], ids=repr)
def test_something_else_among_the_devices_is_refused_saying_what_it_was(wrong):
    with pytest.raises(DriverFault, match=r"among its devices, expected a Device"):
        answers.devices([A, wrong])


def test_an_id_listed_twice_is_refused_by_name():
    with pytest.raises(DriverFault, match="listed the id 'a' twice"):
        answers.devices([A, B, Device("a", numa_nodes=(1,))])


def test_a_list_without_end_is_refused():
    with pytest.raises(DriverFault, match="more than 200000 devices"):
        answers.devices(Device(f"d{number}") for number in itertools.count())


@pytest.mark.parametrize("answer", [None, {}, [Allocation()], Allocation], ids=repr)
def test_only_an_allocation_is_an_allocation(answer):
    with pytest.raises(DriverFault, match="expected an Allocation"):
        answers.allocation(answer)


def test_an_allocation_passes_as_it_is():
    allocation = Allocation(env={"A": "1"})
    assert answers.allocation(allocation) is allocation


def test_preferred_devices_are_as_many_as_were_asked_for():
    assert answers.preferred(iter([B, A]), (A, B, C), 2) == (B, A)
    assert answers.preferred([], (A,), 0) == ()


@pytest.mark.parametrize("answer", [[A], [A, B, C], itertools.cycle([A])], ids=["fewer", "more", "without end"])
def test_another_number_of_preferred_devices_is_refused(answer):
    with pytest.raises(DriverFault, match=r"prefer\(\) returned"):
        answers.preferred(answer, (A, B, C), 2)


def test_a_preferred_device_that_is_not_available_is_refused():
    with pytest.raises(DriverFault, match="'c', which isn't available"):
        answers.preferred([A, C], (A, B), 2)


def test_a_device_is_preferred_as_often_as_it_is_available_and_no_more():
    assert answers.preferred([A, A], (A, A, B), 2) == (A, A)
    with pytest.raises(DriverFault, match="more often than it is"):
        answers.preferred([B, B], (A, A, B), 2)


@pytest.mark.parametrize("error", [DriverError("x"), DeviceUnavailable("x"), Busy("x")], ids=repr)
def test_the_errors_of_the_contract_pass_as_they_are(error):
    assert answers.fault("allocate", error) is error


def test_any_other_error_is_a_fault_that_names_the_method_and_the_error():
    assert str(answers.fault("allocate", KeyError("x"))) == "allocate() raised KeyError: 'x'"


def test_an_error_whose_text_fails_is_named_all_the_same():
    class Silent(Exception):
        def __str__(self):
            raise ZeroDivisionError

    fault = answers.fault("devices", Silent())
    assert isinstance(fault, DriverFault)
    assert str(fault) == "devices() raised Silent, whose text can't be had: __str__ raised ZeroDivisionError"


@pytest.mark.parametrize("base", [Busy, DriverError, ValueError])
def test_an_error_whose_text_cannot_be_had_is_a_fault(base):
    def speak(_):
        raise SystemExit

    mute = type("Mute", (base,), {"__str__": speak})
    error = answers.fault("allocate", mute())
    assert type(error) is DriverFault
    assert str(error) == "allocate() raised Mute, whose text can't be had: __str__ raised SystemExit"
