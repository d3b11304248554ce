import pytest

from dpgateway import Device
from tests.support.serving import Client, Served

DEVICES = (Device("a"), Device("b"))


@pytest.fixture
async def serve(short_path, log):
    """Serves resources that list the devices a and b."""
    made = []

    async def make(directory=None, *, bind=True, devices=DEVICES, **config):
        made.append(one := Served(directory or short_path, log, **config))
        if devices is not None:
            one.inventory.take(tuple(devices))
        if bind:
            await one.endpoint.open()
        return one

    yield make
    for one in made:
        await one.close()


@pytest.fixture
async def connect():
    clients = []

    def make(socket, **options):
        clients.append(Client(socket, **options))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()
