"""What is known of hardware: drivers, and one driver while it runs. No front is known here.

contract    what a driver is
hookspecs   the hook through which a package says which class is its driver
points      the entry points through which packages are found
discovery   imports a driver's package and checks its class
options     types the options of a configuration's resources, and asks the drivers for claims and warnings
loading     does both for all resources at once, whatever hangs
answers     checks what a driver returns and raises
allocating  the lane of allocate, preview and prefer
preparing   the lane of prepare and release
lanes       the calls of one driver that others may make, in these two lanes
listing     the list lane, which asks the driver for its devices, and judges which of them a container can get
running     one resource's driver: loaded, made, asked, closed; what it says, for anyone to watch
"""
