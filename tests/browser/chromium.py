"""A headless Chromium, driven by the Chrome DevTools Protocol over two pipes: no driver and no web socket between.

https://chromedevtools.github.io/devtools-protocol/
"""

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import tempfile
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any, Self

from tests.support.waiting import until

PROGRAMS = ("chromium-headless-shell", "chromium")
"""Both are Debian packages; the first one is smaller."""
PATIENCE = 120.0
"""Seconds for one answer of the browser, the first of which takes its start."""
LONGEST = 64 * 1024 * 1024
"""Bytes of one answer, which may be a picture."""
ON_PIPES = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
"""--remote-debugging-pipe reads descriptor 3 and writes descriptor 4."""


def program() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Chromium:
    """One page in a browser. ``complaints`` has all that the browser has to say against it."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self._profile = Path(tempfile.mkdtemp(prefix="browser-"))
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._session: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        found = program()
        assert found is not None, f"there is no browser: install the package {PROGRAMS[0]}"
        arguments = [
            "--headless",
            "--no-sandbox",  # it refuses to run as root with one; its only page is ours
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            f"--user-data-dir={self._profile}",
            "--remote-debugging-pipe",
        ]
        self._process: Process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            ON_PIPES,
            "sh",
            found,
            *arguments,
            stdin=PIPE,
            stdout=PIPE,
            limit=LONGEST,
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read(), name="the browser's answers")
        try:
            target = await self.do("Target.createTarget", url="about:blank")
            attached = await self.do("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            self._session = {"sessionId": attached["sessionId"]}
            for domain in ("Page", "Runtime", "Log"):
                await self.do(f"{domain}.enable")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # its children have its pipes, too
        await self._process.wait()
        await self._reading
        shutil.rmtree(self._profile, ignore_errors=True)  # its children may still write

    async def do(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params, **self._session}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(PATIENCE):
            return await answer

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while True:
                message = json.loads((await self._process.stdout.readuntil(b"\0"))[:-1])
                if (answer := self._waiting.pop(message.get("id"), None)) is not None:
                    if "error" in message:
                        answer.set_exception(AssertionError(message["error"]))
                    else:
                        answer.set_result(message["result"])
                elif message["method"] in {"Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"}:
                    self.complaints.append(json.dumps(message["params"]))
        except asyncio.IncompleteReadError:
            for answer in self._waiting.values():
                answer.set_exception(AssertionError("the browser has ended"))

    async def open(self, url: str) -> None:
        await self.do("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        result = await self.do("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def text(self, selector: str) -> str:
        """What a person reads there; empty if nothing is there."""
        found = await self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return str(found)

    async def look(self, *, width: int, height: int, dark: bool) -> None:
        """As on a screen of this size."""
        await self.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        # It is told of the size, and has it when it comes to it.
        await until(lambda: self.run(f"matchMedia('(width: {width}px)').matches"), pause=0.05)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.do("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self) -> bytes:
        """A PNG of what is seen."""
        return base64.b64decode((await self.do("Page.captureScreenshot", format="png"))["data"])
