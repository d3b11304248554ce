"""What every resource does with its driver's devices, so that no driver has to. All but the last two modules are pure.

shares       the ids under which a device is offered
ledger       which ids are listed, and what each one means: lost and held ones too
size         how long a list may be
preference   the best ids of those that are free
allocations  what the configuration adds to an allocation
inventory    the current list, for anyone to watch
news         what the log says of the list's changes
"""
