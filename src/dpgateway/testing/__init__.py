"""The kit that driver authors test with.

One class in a driver's tests runs the whole contract under pytest::

    from dpgateway.testing import DriverContract

    class TestContract(DriverContract):
        def make(self, context):
            return MyDriver(MyDriver.Options(), context)

A method ``remove(device)`` beside ``make`` unplugs a device, and one more test sees that the others keep their ids.

Without pytest, ``check_driver(lambda context: MyDriver(MyDriver.Options(), context))`` does the same at once. For
further tests, ``Recorder().context()`` is a driver's context; the recorder knows what the driver said through it.
``FakeTree`` makes files such as those of sysfs.

contract     the contract test
package      what a driver's package must be
calls        calls a driver's methods as the gateway does
concurrency  runs them at once, as the gateway's lanes do
doubts       what the contract allows, and hardly anybody means
recorder     a context that remembers what the driver said
trees        the host's files, as a test wants them
"""

from dpgateway.testing.calls import ContractBroken, ContractWarning
from dpgateway.testing.contract import DriverContract, check_driver
from dpgateway.testing.recorder import Recorder
from dpgateway.testing.trees import FakeTree

__all__ = ["ContractBroken", "ContractWarning", "DriverContract", "FakeTree", "Recorder", "check_driver"]
