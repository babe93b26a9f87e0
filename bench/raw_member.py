"""The limit: a uvloop mesh that orders nothing, acknowledges nothing and resends nothing.

Takes the same arguments and obeys the same lines as member.py.
"""

from __future__ import annotations

import asyncio
import struct
import sys

import msgspec

from bench.member import Counted, read_lines, run_phases

HEADER = struct.Struct("!I")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


class Peer(asyncio.Protocol):
    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.set_write_buffer_limits(high=1 << 18)  # type: ignore[attr-defined]
        self.raw.transports.append(transport)
        if len(self.raw.transports) == self.raw.wanted:
            self.raw.complete.set()

    def pause_writing(self) -> None:
        self.raw.paused += 1
        self.raw.writable.clear()

    def resume_writing(self) -> None:
        self.raw.paused -= 1
        if not self.raw.paused:
            self.raw.writable.set()

    def data_received(self, data: bytes) -> None:
        data = self.rest + data if self.rest else data
        view, place = memoryview(data), 0
        while len(data) - place >= HEADER.size:
            (length,) = HEADER.unpack_from(data, place)
            end = place + HEADER.size + length
            if end > len(data):
                break
            self.raw.counted.add(_decode(view[place + HEADER.size : end]))
            place = end
        self.rest = bytes(view[place:])


class Raw:
    """What a group is to member.py: something to send many messages to."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.counted = Counted()
        self.transports: list[object] = []
        self.complete = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.paused = 0

    async def send_many(self, messages: list[bytes]) -> None:
        await self.writable.wait()
        body = _encode(messages)
        framed = HEADER.pack(len(body)) + body
        for transport in self.transports:
            transport.write(framed)  # type: ignore[attr-defined]
        self.counted.add(messages)


async def main(base: int, rank: int, n: int) -> None:
    loop = asyncio.get_running_loop()
    raw = Raw(n - 1)
    await loop.create_server(lambda: Peer(raw), "127.0.0.1", base + rank)
    for other in range(rank):
        while True:
            try:
                await loop.create_connection(lambda: Peer(raw), "127.0.0.1", base + other)
                break
            except OSError:
                await asyncio.sleep(0.05)
    await raw.complete.wait()
    await run_phases(raw, raw.counted, rank, n, read_lines())


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(int(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4])))
