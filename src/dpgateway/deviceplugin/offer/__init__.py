"""What every resource does with its driver's devices, so that no driver has to: small pure modules, and the inventory.

shares      the ids under which a device is offered
ledger      which ids are listed, and what each one means: lost and held ones too
preference  the best ids of those that are free
allocations what the configuration adds to an allocation
inventory   the list of now, and waiting for the next one
"""
