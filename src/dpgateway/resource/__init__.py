"""One extended resource, whichever front offers it.

fronted         a resource on a front, as the gateway runs it
resource        its parts, and its life; it follows its driver
front           the interface to its front: holdings as a value, events of a grant
standing        the registration by a front, as a value
published       the status of a front that publishes devices to the cluster, as a value
inventory       its devices: the driver's list, the held ids
offered         its published list, observable
ledger          the listed ids and their meanings, with lost and held ids
limit           the limit on the list's size
shares          its list: ids, health, and the shares of one device
exclusion       devices whose hardware is in use elsewhere: a pool, and its member
use             hardware in use, and the devices that it excludes
pools           resources that may offer the same hardware
granting        grants devices to containers, and prepares them
additions       the configuration's additions to an allocation
held            the held devices, for drivers that ask
freeing         releases free devices to the driver
journal         its grants, on disk
orphans         holdings of resources that are no longer configured
left_journals   journals of resources that have no writer here
specs           CDI specs, kept while containers need them
ownership       the gateway of the node that serves the resource: a lock
owner           the content of its file: who serves the resource
elsewhere       resources that other gateways own
list_log        log lines about changes of the list
"""
