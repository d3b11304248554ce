"""What the codec makes of messages; `test_plugin` looks at what is sent."""

import pytest

from dpgateway_simulator.wire import v1beta1
from dpgateway_simulator.wire.client import Codec


def test_rubbish_is_an_internal_error() -> None:
    with pytest.raises(Exception, match="failed to unmarshal"):
        Codec(None).decode(b"\x0a\xff", v1beta1.AllocateRequest)
