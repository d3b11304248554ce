from dpgateway.deviceplugin.api import APIS, ListEncoder
from dpgateway.deviceplugin.offer.inventory import Inventory
from dpgateway.deviceplugin.server.pace import Pace
from dpgateway.deviceplugin.server.streams import Lists
from dpgateway.model import Health, Offer


class Counting(ListEncoder):
    times = 0

    def encode(self, offers):
        self.times += 1
        return super().encode(offers)


def lists():
    inventory, encoder = Inventory(), Counting(APIS[0])
    return inventory, encoder, Lists(inventory, Pace(), {APIS[0].name: encoder})


def test_a_list_that_was_made_ready_is_not_encoded_again():
    inventory, encoder, ready = lists()
    inventory.publish({"a": Offer("a")})
    ready.make_ready(APIS[0])
    assert encoder.times == 1
    assert ready.encode(APIS[0], inventory.current) == APIS[0].to_offer(Offer("a"))
    assert encoder.times == 1


def test_a_newer_list_is():
    inventory, encoder, ready = lists()
    inventory.publish({"a": Offer("a")})
    ready.make_ready(APIS[0])
    sick = Offer("a", Health.unhealthy("x"))
    inventory.publish({"a": sick})
    assert ready.encode(APIS[0], inventory.current) == APIS[0].to_offer(sick)
    assert encoder.times == 2


def test_there_may_be_no_list_yet():
    _, encoder, ready = lists()
    ready.make_ready(APIS[0])
    assert encoder.times == 0
