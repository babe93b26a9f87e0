"""Three editors share one pen: the editor that has it writes a paragraph and gives it back.

    python examples/editors.py ann
    python examples/editors.py ben
    python examples/editors.py cid

They write one novel: a causal cluster with a single ticket, which is the pen. Each editor waits for
the pen, writes two sentences and gives it back, twice. All editors read the same novel, and no
paragraph contains a sentence of another editor. If you kill the editor that has the pen, its
paragraph stays unfinished, and another editor gets the pen after a second or two. The others stop
when nobody has written for ten seconds.
"""

import asyncio
import sys

import ordercast

PLACES = {"ann": "127.0.0.1:7121", "ben": "127.0.0.1:7122", "cid": "127.0.0.1:7123"}
NOVEL = ordercast.Causal(tickets=1, lease="1s")
PARAGRAPHS = 2
THINKING_SECONDS = 1.0  # between two sentences: time enough to kill the editor that has the pen
PATIENCE_SECONDS = 10.0


async def write(novel: ordercast.Group, me: str) -> None:
    for number in range(1, PARAGRAPHS + 1):
        await novel.become_updater()
        try:
            await novel.send(f"{me} begins paragraph {number}".encode())
            await asyncio.sleep(THINKING_SECONDS)
            await novel.send(f"{me} ends paragraph {number}".encode())
            await novel.stop_updating()
        except ordercast.TicketLost as error:
            print(f"{me}: {error}")  # unreachable for too long: another editor has it


async def read(novel: ordercast.Group, me: str) -> None:
    """TimeoutError: the novel is not complete, and nobody has written for a while."""
    writing, ended = None, 0
    async with asyncio.timeout(None) as patience:
        async for event in novel:
            match event:
                case ordercast.Updating(cause=cause):
                    print(f"{me}: the pen is {cause}")
                case ordercast.Message(sender=writer, data=data):
                    print(f"{me}: {data.decode()}")
                    patience.reschedule(asyncio.get_running_loop().time() + PATIENCE_SECONDS)
                    if b"begins" in data:
                        if writing is not None:  # its lease has expired, so it writes no more
                            print(f"{me}: {writing.name} did not end its paragraph")
                        writing = writer
                        continue
                    assert writing == writer, "another editor writes into this paragraph"
                    writing, ended = None, ended + 1
                    if ended == PARAGRAPHS * len(PLACES):
                        return


async def main(me: str) -> None:
    peers = {name: place for name, place in PLACES.items() if name != me}
    async with (
        ordercast.open(name=me, listen=PLACES[me], peers=peers) as node,
        node.join("novel", NOVEL, list(PLACES)) as novel,
    ):
        try:
            await asyncio.gather(write(novel, me), read(novel, me))
        except TimeoutError:
            print(f"{me}: nobody has written for {PATIENCE_SECONDS:g} s, so this is the end")


if __name__ == "__main__":
    if sys.argv[1:] not in [[name] for name in PLACES]:
        sys.exit(f"usage: editors.py {'|'.join(PLACES)}")
    asyncio.run(main(sys.argv[1]))
