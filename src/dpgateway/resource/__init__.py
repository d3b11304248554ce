"""One extended resource, whichever front offers it.

resource        its parts, and its life
offers          the values of its list
front           what it asks of its front: what containers have, and a place to tell what happens
driver_watch    follows its driver
inventory       its devices now, for anyone to follow
ledger          which ids are listed, and what each one means: lost and held ones too
limit           how long the list may be
shares          the ids under which a device is offered
use             who uses which hardware, and what that excludes
pools           resources whose devices may be the same hardware
granting        gives devices to containers, and makes them ready
additions       what the configuration adds to an allocation
standing        how a front's registration of it stands
held            which devices containers hold, for drivers that ask
freeing         tells the driver what is free
journal         what was given away, on disk
orphans         what containers still hold of resources that aren't configured any more
specs           CDI specs, as long as containers need them
ownership       which gateway of the node serves the resource
elsewhere       what other gateways serve
list_log        what the log says of the list's changes
"""
