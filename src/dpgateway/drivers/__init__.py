"""Drivers: the contract, discovery, and one driver at run time. Independent of any front.

contract    the interface of a driver
hookspecs   the hook that returns a package's driver class
points      the entry points of installed packages
discovery   imports a driver's package and checks its class
options     types the options of resources; collects claims and warnings
parameters  the options that a claim may choose
loading     imports drivers and checks options concurrently, each on a thread of its own
answers     checks results and exceptions of a driver
allocating  the lane of allocate, preview and prefer
preparing   the lane of prepare and release
lanes       the calls of one driver, in these two lanes
listing     the list lane: polls for the devices, and judges which of them a container can get
running     one resource's driver: loaded, made, polled, closed; its observable state
"""
