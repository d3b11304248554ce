"""USB sticks in a tree of files: what the kernel would show of each."""

from dpgateway.testing import FakeTree

USB = "/sys/devices/pci0000:00/0000:00:14.0/usb1"


def plug(tree: FakeTree, port: str, serial: str, number: int) -> None:
    """As /dev/ttyUSB<number>, which is 188:<number>."""
    tty = f"ttyUSB{number}"
    here = f"{USB}/{port}/{port}:1.0/{tty}/tty/{tty}"
    tree.write(f"""
        {USB}/{port}/idVendor = 0403
        {USB}/{port}/serial = {serial}
        {here}/uevent = MAJOR=188\\nMINOR={number}\\nDEVNAME={tty}
        c /dev/{tty} 188:{number}
        /sys/class/tty/{tty} -> {here}
    """)
