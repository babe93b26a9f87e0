"""A small shared world: a plane lands, and only then do its passengers leave it.

The world is divided into regions, and each region is a causal cluster: `world/7` and `world/8`. A
process that looks at a region joins its cluster, and leaves it when it looks elsewhere. Start three
processes:

    python examples/world.py pilot
    python examples/world.py airport
    python examples/world.py viewer

The pilot lands planes in both regions. When the airport sees a landing, it lets the passengers out.
The viewer follows one region, then the other. It stops with an error if it sees passengers leave a
plane before it has seen the plane land.
"""

import asyncio
import sys

import ordercast

PLACES = {"pilot": "127.0.0.1:7111", "airport": "127.0.0.1:7112", "viewer": "127.0.0.1:7113"}
CLUSTER = ordercast.Causal(updaters=["pilot", "airport"])  # the others only read
PLANES = 6


async def pilot(node: ordercast.Node) -> None:
    while not all(peer["connected"] for peer in node.status()["peers"].values()):
        await asyncio.sleep(0.05)  # otherwise nobody would see the first planes
    async with node.join("world/7", CLUSTER) as west, node.join("world/8", CLUSTER) as east:
        readers = [asyncio.create_task(drain(region)) for region in (west, east)]
        for plane in range(PLANES):
            for region in (west, east):
                await region.send(b"plane %d is in sight" % plane)
                await region.send(b"plane %d has landed" % plane)
            await asyncio.sleep(0.4)
        for reader in readers:
            reader.cancel()


async def airport(node: ordercast.Node) -> None:
    async with node.join("world/7", CLUSTER) as west, node.join("world/8", CLUSTER) as east:
        await asyncio.gather(*(let_passengers_out(region) for region in (west, east)))


async def let_passengers_out(region: ordercast.Group) -> None:
    landed = 0
    async for event in region:
        if isinstance(event, ordercast.Message) and event.data.endswith(b"has landed"):
            plane = event.data.split()[1]
            await region.send(b"passengers of plane %s leave" % plane)
            landed += 1
            if landed == PLANES:
                return


async def viewer(node: ordercast.Node) -> None:
    for name in ("world/7", "world/8"):  # its interest moves from one region to the other
        async with node.join(name, CLUSTER) as region:
            await watch(region, planes=2)


async def watch(region: ordercast.Group, planes: int) -> None:
    landed = set()
    left = 0
    async for event in region:
        if not isinstance(event, ordercast.Message):
            continue
        print(f"viewer: {region.name}: {event.data.decode()}")
        words = event.data.split()
        if words[-1] == b"landed":
            landed.add(words[1])
        elif words[0] == b"passengers":
            assert words[3] in landed, "passengers leave a plane in the air"
            left += 1
            if left == planes:
                return


async def drain(region: ordercast.Group) -> None:
    async for _ in region:
        pass


async def main(me: str) -> None:
    peers = {name: place for name, place in PLACES.items() if name != me}
    async with ordercast.open(name=me, listen=PLACES[me], peers=peers) as node:
        await {"pilot": pilot, "airport": airport, "viewer": viewer}[me](node)


if __name__ == "__main__":
    if sys.argv[1:] not in [[name] for name in PLACES]:
        sys.exit(f"usage: world.py {'|'.join(PLACES)}")
    asyncio.run(main(sys.argv[1]))
