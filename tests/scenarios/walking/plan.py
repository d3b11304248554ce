"""The configuration of a gateway of the walk, as a value that changes by steps.

Slots stay: cards of a pool, sticks matched by what they are, shared devices, devices whose release is slow. What a slot
is called, and how it is configured, changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.scenarios.walking.hardware import Hardware

DOMAIN = "walk.example"
SHARE_IDS = None, "{id}/part{share}", "{id}-s{share}"


@dataclass(frozen=True)
class Plan:
    """`pool`: how many resources offer the cards."""

    pool: int = 2
    cards: int = 2
    shared: int = 2
    slow: int = 2
    shares: int = 2
    share_ids: str | None = None
    cdi: str = "auto"
    pool_name: str = "cards"
    seconds: float = 0.8
    renamed: Mapping[str, int] = field(default_factory=dict)
    """How often each slot got another name."""
    hidden: frozenset[tuple[str, int]] = frozenset()
    """Cards that a slot of the pool doesn't offer."""

    @property
    def slots(self) -> tuple[str, ...]:
        return *self.pooled, "stick", "shared", "slow"

    @property
    def pooled(self) -> tuple[str, ...]:
        return tuple(f"card-{number}" for number in range(self.pool))

    def name(self, slot: str) -> str:
        times = self.renamed.get(slot, 0)
        return f"{DOMAIN}/{slot}{f'-{times}' if times else ''}"

    def slot(self, name: str) -> str | None:
        return next((slot for slot in self.slots if self.name(slot) == name), None)

    def allowed(self, name: str) -> int:
        """How many containers may have a device of this resource; 0 if it isn't configured."""
        slot = self.slot(name)
        return 0 if slot is None else self.shares if slot == "shared" else 1

    def resources(self, hardware: Hardware, files: str) -> list[dict[str, Any]]:
        dev, root = str(hardware.dev), str(hardware.root)
        roots = {"sysfs": f"{root}/sys", "proc": f"{root}/proc", "udev": f"{root}/run/udev"}
        made: dict[str, dict[str, Any]] = {
            slot: {
                "driver": "chardev",
                "pool": self.pool_name,
                "options": {"paths": [f"{dev}/card{n}" for n in range(self.cards) if (slot, n) not in self.hidden]},
            }
            for slot in self.pooled
        }
        match = {"subsystem": "tty", "attrs": {"idVendor": "10c4"}}
        made["stick"] = {
            "driver": "chardev",
            "cdi": self.cdi,
            "refresh": "1s",
            "options": {"match": match, "container_path": "/dev/stick", **roots},
        }
        shares = {"count": self.shares, **({"ids": self.share_ids} if self.share_ids else {})}
        paths = [f"{dev}/shared{number}" for number in range(self.shared)]
        made["shared"] = {"driver": "chardev", "shares": shares, "options": {"paths": paths}}
        nodes = [f"{dev}/slow{number}" for number in range(self.slow)]
        made["slow"] = {
            "driver": "slow-release",
            "options": {"nodes": nodes, "files": files, "seconds": self.seconds},
        }
        return [{"name": self.name(slot), **made[slot]} for slot in self.slots]

    # changes

    def rename(self, slot: str) -> "Plan":
        return replace(self, renamed={**self.renamed, slot: self.renamed.get(slot, 0) + 1})

    def reshared(self, random: Random) -> "Plan":
        """More or fewer shares, one time in three under other ids."""
        ids = random.choice((self.share_ids, self.share_ids, *SHARE_IDS))
        return replace(self, shares=random.randint(1, 3), share_ids=ids)

    def changed(self, random: Random) -> tuple[str, "Plan"]:
        """Another configuration, and what is other."""
        match random.choice(("name", "name", "name", "shares", "cdi", "devices", "pool")):
            case "name":
                slot = random.choice((*self.pooled, *self.pooled[:2], "stick", "shared", "slow"))
                return f"{slot} is renamed", self.rename(slot)
            case "shares":
                new = self.reshared(random)
                return f"shares {self.shares} -> {new.shares}, ids {self.share_ids} -> {new.share_ids}", new
            case "cdi":
                cdi = "auto" if self.cdi == "always" else "always"
                return f"cdi: {cdi} for sticks", replace(self, cdi=cdi)
            case "pool":
                name = "cards" if self.pool_name != "cards" else "decks"
                return f"pool {self.pool_name} -> {name}", replace(self, pool_name=name)
            case _:
                one = random.choice(self.pooled), random.randrange(self.cards)
                hidden = self.hidden ^ {one} if self.cards > 1 else self.hidden
                kept = all(sum((slot, n) in hidden for n in range(self.cards)) < self.cards for slot in self.pooled)
                text = f"card{one[1]} of {one[0]} {'goes' if one in hidden else 'comes back'}"
                return text, replace(self, hidden=hidden if kept else frozenset())
