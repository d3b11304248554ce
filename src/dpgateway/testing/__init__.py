"""The kit that driver authors test with.

One class in a driver's tests runs the whole contract under pytest::

    from dpgateway.testing import DriverContract

    class TestContract(DriverContract):
        def make(self, context):
            return MyDriver(MyDriver.Options(), context)

Without pytest, ``check_driver(lambda context: MyDriver(MyDriver.Options(), context))`` does the same at once. For
further tests, ``Recorder().context()`` is a driver's context; the recorder knows what the driver said through it.
"""

from dpgateway.testing.calls import ContractBroken
from dpgateway.testing.contract import DriverContract, check_driver
from dpgateway.testing.recorder import Recorder

__all__ = ["ContractBroken", "DriverContract", "Recorder", "check_driver"]
