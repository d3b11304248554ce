"""An answer to an Allocate may be as large as the kubelet takes it, in whichever version."""

import pytest

from dpgateway.deviceplugin.api import LARGEST, Call, v1alpha1, v1alpha2, v1beta1
from dpgateway.deviceplugin.values import Grant
from dpgateway.model import Allocation, DeviceNode, Mount


def answer(api, grant):
    encode = next(rpc.encode for rpc in api.rpcs if rpc.call is Call.ALLOCATE)
    return len(encode((grant,)))


def filled(where, text):
    """A grant with this text where it says."""
    if where == "id":
        return Grant(("a", text), Allocation())
    path = f"/{text}"
    kinds = {
        "env": lambda: Allocation(env={"A": text}),
        "env's name": lambda: Allocation(env={text: ""}),
        "annotation": lambda: Allocation(annotations={"a": text}),
        "annotation's name": lambda: Allocation(annotations={text: ""}),
        "device node": lambda: Allocation(device_nodes=(DeviceNode(path, "/a"),)),
        "device node in the container": lambda: Allocation(device_nodes=(DeviceNode("/a", path),)),
        "mount": lambda: Allocation(mounts=(Mount(path, "/a"),)),
        "mount in the container": lambda: Allocation(mounts=(Mount("/a", path),)),
        "CDI device": lambda: Allocation(cdi_devices=(f"v.example/c={text}",)),
    }
    return Grant(("a",), kinds[where]())


NEW, V1ALPHA2, V1ALPHA1 = v1beta1.API, v1alpha2.API, v1alpha1.API
NODES_AND_MOUNTS = ["device node", "device node in the container", "mount", "mount in the container"]
PLACES = ["env", "env's name", "annotation", "annotation's name", *NODES_AND_MOUNTS, "CDI device"]
SIZES = [*((NEW, where, "x") for where in PLACES), (NEW, "env", "\U0001f600"), (V1ALPHA2, "env", "x")]
SIZES += [(V1ALPHA1, "env", "x"), (V1ALPHA1, "id", "x")]


@pytest.mark.parametrize(("api", "where", "character"), SIZES)
def test_an_answer_may_have_the_largest_size(api, where, character):
    spare = answer(api, filled(where, "x" * LARGEST)) - LARGEST  # what isn't the text itself
    text = character * ((LARGEST - spare) // len(character.encode()))
    text += "x" * (LARGEST - answer(api, filled(where, text)))
    assert answer(api, filled(where, text)) == LARGEST
    assert api.too_large((filled(where, text),)) == ""
    larger = answer(api, filled(where, text + "x"))
    expected = f"the answer takes {larger} bytes, and the kubelet accepts {LARGEST}"
    assert api.too_large((filled(where, text + "x"),)) == expected


def test_all_containers_of_an_answer_count():
    half = filled("env", "x" * (LARGEST // 2))
    assert NEW.too_large((half,)) == ""
    assert NEW.too_large((half, half)).startswith("the answer takes ")
