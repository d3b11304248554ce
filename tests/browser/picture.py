"""Takes the pictures of the page for people that its documentation shows: ``python -m tests.browser.picture``."""

import asyncio
import tempfile
from pathlib import Path

from tests.browser.chromium import Chromium
from tests.browser.node import CAMERA, SERIAL, Node, node
from tests.support.waiting import until

FOLDER = Path(__file__).parents[2] / "docs/reference"
SIZE = {"width": 760, "height": 860}


async def take(one: Node, browser: Chromium) -> None:
    await browser.open(await one.start())
    await one.admit("modem", serial=2)
    await one.admit("vision", fpga=1, camera=1)
    one.fail(CAMERA, absent=True, indexes=[0])
    one.fail(SERIAL, unhealthy="no carrier for 30 s", indexes=[5])

    async def shown() -> bool:
        found = await browser.text("main")
        return all(text in found for text in ("is gone, but", "no carrier", "3 free, 1 held", "default/modem"))

    await until(shown, pause=0.1)
    for scheme in ("light", "dark"):
        await browser.look(**SIZE, dark=scheme == "dark")
        (FOLDER / f"page-{scheme}.png").write_bytes(await browser.picture())


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:
        async with node(Path(folder)) as one, Chromium() as browser:
            await take(one, browser)


if __name__ == "__main__":
    asyncio.run(main())
