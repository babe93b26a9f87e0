"""Sockets that are bound to a place, made the same way for connections and for datagrams."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
from typing import Any

TRIES = 16
"""Ports that the system chose are tried, until one is free for datagrams as well."""


async def bound(host: str, port: int, kind: socket.SocketKind) -> list[socket.socket]:
    """One socket for each address that the host has here. They share a port, also if it is 0: then
    it is one that datagrams can have, too."""
    for _ in range(TRIES if port == 0 and kind == socket.SOCK_STREAM else 1):
        made = await _bound(host, port, kind)
        if port or kind == socket.SOCK_DGRAM or is_free_for_datagrams(made[0]):
            break
        for one in made:
            one.close()
    else:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    return made


def is_free_for_datagrams(listener: socket.socket) -> bool:
    with socket.socket(listener.family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind(listener.getsockname())
        except OSError:
            return False
    return True


async def _bound(host: str, port: int, kind: socket.SocketKind) -> list[socket.socket]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=kind, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    try:
        for family, _, protocol, _, address in dict.fromkeys(found):
            made.append(one := socket.socket(family, kind, protocol))
            one.setblocking(False)
            if kind == socket.SOCK_STREAM:
                # A node that restarts must not wait for connections of its former incarnation. With
                # UDP there is nothing to wait for, and it would let two share a port.
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((address[0], port, *address[2:]))
            port = one.getsockname()[1]
    except BaseException:
        for one in made:
            one.close()
        raise
    return made


def place_of(address: tuple[Any, ...]) -> str:
    """host:port of the address of a socket."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_of(place: str | None) -> tuple[str, int] | None:
    """The address of a socket, if the host of host:port is an address and not a name."""
    host = literal_host(place)
    port = (place or "").rpartition(":")[2]
    return (host, int(port)) if host and port.isdecimal() and 0 < int(port) < 1 << 16 else None


def literal_host(place: str | None) -> str | None:
    """The host of host:port, if it is an address and not a name that wants to be looked up."""
    host = (place or "").rpartition(":")[0].strip("[]")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None
