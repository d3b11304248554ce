import logging
import re

import pytest

from dpgateway.config import WebSettings
from dpgateway.kit.observable import Observable
from dpgateway.web.answers import TEXT, Limits, Response
from dpgateway.web.serving import Serving
from tests.support.serving import group
from tests.support.waiting import until

FEW = Limits(asking=20, taking=20, connections=8)
AT = re.compile(r"the pages are at http://127\.0\.0\.1:(\d+)/")


class Pages:
    """Pages that are served, and what they say."""

    def __init__(self, log, limits):
        self.wanted = Observable(WebSettings("127.0.0.1:0"))
        self.table = {"/text": self._text, "/bug": self._bug}
        self.text = "here"
        self.log = log
        serving = Serving(self.table, self.wanted, limits)
        self.task = group().create_task(serving.run(), name="pages")

    async def _text(self):
        return Response(TEXT, self.text.encode())

    async def _bug(self):
        raise ZeroDivisionError("oops")

    async def said(self, text):
        """The line of the log that begins so, once it is there."""
        return await until(lambda: next((one for one in self.log.messages if one.startswith(text)), ""))

    async def port(self):
        """Where they are, once they are; each port is told once."""
        found = await until(lambda: next(filter(None, map(AT.fullmatch, self.log.messages)), None))
        self.log.clear()
        return int(found[1])


@pytest.fixture
async def pages(request, caplog):
    """A test may name other limits."""
    caplog.set_level(logging.INFO, "dpgateway")
    served = Pages(caplog, getattr(request, "param", FEW))
    yield served
    served.task.cancel()
    await until(served.task.done)


@pytest.fixture
async def port(pages):
    return await pages.port()
