"""BuildKit's API of a docker engine on a TCP port, with client certificates, and with faults.

dockerd serves the API at `POST /grpc`, after an upgrade of HTTP/1.1. So a second dockerd can be a builder
with the driver `remote`, without an image of buildkitd.
"""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

_UPGRADE = (
    b"POST /grpc HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n"
)


class BuildkitBridge:
    """Bridge to the socket of an engine, in a thread."""

    def __init__(self, engine: Path, context: ssl.SSLContext) -> None:
        self._engine, self._context = engine, context
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.received = 0
        """Bytes from clients."""

    @contextlib.contextmanager
    def serve(self) -> Iterator[int]:
        """Serve the API while the context lasts, and yield the port."""
        started, ended = threading.Event(), asyncio.Event()

        async def run() -> None:
            server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self._context)
            self.port = server.sockets[0].getsockname()[1]
            self._flows.set()
            started.set()
            await ended.wait()
            server.close()
            self._flows.set()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        thread = threading.Thread(target=self._loop.run_until_complete, args=(run(),), daemon=True)
        thread.start()
        assert started.wait(10)
        try:
            yield self.port
        finally:
            self._loop.call_soon_threadsafe(ended.set)
            thread.join(10)
            self._loop.close()

    def freeze(self) -> None:
        """Pass nothing on, and leave all connections open."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def thaw(self) -> None:
        self._loop.call_soon_threadsafe(self._flows.set)

    def cut(self) -> None:
        """Close all connections."""
        for writer in [*self._writers]:
            self._loop.call_soon_threadsafe(writer.transport.abort)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_engine, to_engine = await asyncio.open_unix_connection(self._engine)
        except OSError:
            # The engine does not run.
            writer.close()
            return
        to_engine.write(_UPGRADE)
        head = await from_engine.readuntil(b"\r\n\r\n")
        assert b" 101 " in head.partition(b"\r\n")[0], head
        self._writers |= {writer, to_engine}
        with contextlib.suppress(OSError):
            await asyncio.gather(
                self._pass_on(reader, to_engine, is_client=True), self._pass_on(from_engine, writer)
            )
        self._writers -= {writer, to_engine}

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_client: bool = False
    ) -> None:
        try:
            while data := await reader.read(1 << 20):
                self.received += len(data) if is_client else 0
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
