"""What is known of hardware: drivers, and one driver while it runs. No front is known here.

contract    what a driver is
hookspecs   the hook through which a package says which class is its driver
discovery   finds the installed drivers
answers     checks what a driver returns
running     one resource's driver: made, asked, closed; what it says, for anyone to watch
listing     the list lane: asks the driver for its devices
fitting     which of them can be given to a container at all
lanes       the calls that others may make; allocating and preparing are their lanes
"""
