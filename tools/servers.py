"""The memory of HTTP server libraries: ``python -m tools.servers`` prints the megabytes that each adds to the gateway.

The libraries are installed into a temporary directory. Each is measured in a process of its own, which imports the
gateway, serves one page on the gateway's event loop, and answers one request.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

LIBRARIES = ("uvicorn", "aiohttp", "hypercorn")
ROUNDS = 3

BEGIN = """
import asyncio, socket, sys
sys.path.append(sys.argv[1])
import uvloop
import dpgateway.daemon.main
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
def resident():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
async def ask(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\\r\\nhost: localhost\\r\\nconnection: close\\r\\n\\r\\n")
    assert b" 200 " in await reader.readline()
    writer.close()
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
async def serve():
"""
END = """
async def main():
    before = resident()
    serving = asyncio.ensure_future(serve())
    await asyncio.sleep(2)
    if not serving.done():
        await ask(port)
    print(resident() - before)
    import os; os._exit(0)
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""
SERVE = {
    "nothing": "    await asyncio.sleep(0)",
    "uvicorn's protocol, as the gateway uses it": """
    from dpgateway.web.answers import JSON, Application, Limits, Response
    from dpgateway.web.connections import Connections
    async def page():
        return Response(JSON, b"ok")
    connections = Connections(Application({"/": page}, local=True), Limits())
    await asyncio.get_running_loop().create_server(connections.make, sock=listener)
    await asyncio.sleep(99)
""",
    "uvicorn's server": """
    import uvicorn
    config = uvicorn.Config(app, lifespan="off", http="h11", ws="none", log_config=None)
    await uvicorn.Server(config).serve([listener])
""",
    "aiohttp": """
    from aiohttp import web
    async def page(request):
        return web.Response(text="ok")
    application = web.Application()
    application.router.add_get("/", page)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    await asyncio.sleep(99)
""",
    "hypercorn": """
    from hypercorn.asyncio import serve as run
    from hypercorn.config import Config
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.errorlog = config.accesslog = None
    await run(app, config, shutdown_trigger=asyncio.Event().wait)
""",
}


def megabytes(name: str, folder: str) -> float:
    command = [sys.executable, "-c", BEGIN + SERVE[name] + END, folder]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="servers-") as folder:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", folder, *LIBRARIES], check=True)
        for name in SERVE:
            found = sorted(megabytes(name, folder) for _ in range(ROUNDS))
            print(f"{name}: {found[ROUNDS // 2]:.1f} MB")


if __name__ == "__main__":
    main()
