"""The test kit for driver authors.

One class in a driver's tests runs the whole contract under pytest::

    from dpgateway.testing import DriverContract

    class TestContract(DriverContract):
        def make(self, context):
            return MyDriver(MyDriver.Options(), context)

With a method ``remove(device)``, which unplugs a device, one more test checks that the others keep their ids.

Without pytest, ``check_driver(lambda context: MyDriver(MyDriver.Options(), context))`` runs all tests in one call. For
further tests, ``Recorder().context()`` is a driver's context; the recorder keeps the driver's messages and changes.
``FakeTree`` makes files such as those of sysfs.

contract     the contract test
package      checks a driver's entry point, options and import
calls        calls a driver's methods as the gateway does, and describes what breaks
concurrency  calls the methods concurrently, as the gateway's lanes do
doubts       warns of code that the contract allows, but is seldom intended
recorder     a context that records messages and changes
trees        fake sysfs, /dev and /proc
"""

from dpgateway.testing.calls import ContractBroken, ContractWarning
from dpgateway.testing.contract import DriverContract, check_driver
from dpgateway.testing.recorder import Recorder
from dpgateway.testing.trees import FakeTree

__all__ = ["ContractBroken", "ContractWarning", "DriverContract", "FakeTree", "Recorder", "check_driver"]
