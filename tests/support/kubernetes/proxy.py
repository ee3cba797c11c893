"""A wire between a service and the API server that a test can cut, close and let hang."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Literal

BLOCK = 2**16


class Proxy:
    """Passes bytes on to a port of this machine: TLS goes through it unseen."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._ends: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.state: Literal["open", "closed"] = "open"
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Break every connection there is; new ones are taken."""
        self._run(self._break())

    def shut(self) -> None:
        """Break every connection and take no new one, until `open`."""
        self.state = "closed"
        self.cut()

    def open(self) -> None:
        self.state = "open"

    def close(self) -> None:
        self.shut()
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _break(self) -> None:
        for end in list(self._ends):
            end.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.state == "closed":
            writer.transport.abort()
            return
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, there[1]}
        self._ends |= ends
        try:
            await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))
        finally:
            self._ends -= ends
            for end in ends:
                end.transport.abort()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while block := await reader.read(BLOCK):
            writer.write(block)
            await writer.drain()
        writer.write_eof()
