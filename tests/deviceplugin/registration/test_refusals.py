"""One line about all resources, and a reminder."""

import pytest

from dpgateway.deviceplugin.registration.refusals import GATHERING, REMINDER, Refusals
from tests.support.time import advance, in_virtual_time

APIS = ["new", "old"]
RESOURCES = [f"example.com/r{number}" for number in range(64)]


def refuse(refusals, resources=RESOURCES, apis=APIS):
    for api in apis:
        for resource in resources:
            refusals.refused(resource, api, f"UNIMPLEMENTED: unknown service {api}")


@in_virtual_time
async def test_all_resources_share_a_warning(caplog):
    refuse(Refusals(APIS))
    await advance(GATHERING)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "the kubelet speaks none of the APIs that it was offered, so 64 resources are not registered; it answered "
        "'UNIMPLEMENTED: unknown service new' to new, 'UNIMPLEMENTED: unknown service old' to old; "
        "expected a kubelet from 1.8 to 1.37; it is asked again at least every 75 s"
    )
    assert record.__dict__["resources"] == list(RESOURCES)


@pytest.mark.parametrize(("count", "text"), [(1, "so 1 resource is not"), (2, "so 2 resources are not")])
@in_virtual_time
async def test_a_line_is_about_one_resource_or_several(caplog, count, text):
    refuse(Refusals(APIS), RESOURCES[:count])
    await advance(GATHERING)
    assert text in caplog.text


@in_virtual_time
async def test_while_it_lasts_it_is_said_every_ten_minutes(caplog):
    refusals = Refusals(APIS)
    for lines in range(1, 4):
        for _ in range(10):
            refuse(refusals)
            await advance(REMINDER / 10)
        assert len(caplog.records) == lines
    await advance(10 * REMINDER)
    assert len(caplog.records) == 4  # about what came after the third


@in_virtual_time
async def test_what_an_older_api_takes_is_no_refusal(caplog):
    refusals = Refusals(APIS)
    refuse(refusals, apis=APIS[:1])
    await advance(GATHERING)
    refuse(refusals)
    for resource in RESOURCES:
        refusals.accepted(resource)
    await advance(GATHERING)
    assert caplog.records == []


@in_virtual_time
async def test_a_slow_kubelet_is_told_of_later(caplog):
    """When it has answered all."""
    refusals = Refusals(APIS)
    for api in APIS:
        assert caplog.records == []
        refuse(refusals, apis=[api])
        await advance(30)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("told", [False, True])
@in_virtual_time
async def test_another_kubelet_is_told_of_at_once(caplog, told):
    refusals = Refusals(APIS)
    refuse(refusals)
    await advance(GATHERING if told else 0)
    refusals.forget()
    await advance(2 * REMINDER)
    assert len(caplog.records) == told
    refuse(refusals)
    await advance(GATHERING)
    assert len(caplog.records) == told + 1
