"""How a node is, as plain values: for `members`, `monitor` and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ordercast.net.node import Node


def status_of(node: Node) -> dict[str, Any]:
    """Metrics ask from a thread of their own: what may change meanwhile is copied first."""
    config, mesh, identity = node.config, node.mesh, node.identity
    full = node.driver.backpressure.full
    peers = {
        contact.name: {**contact.status(), "full": contact.name in full}
        for contact in list(mesh.contacts.values())
    }
    return {
        "node": str(node.me),
        "cluster": config.cluster,
        "data": str(identity.folder),
        "numbers_left": identity.numbers_left,
        "listens": f"{config.listen.rpartition(':')[0]}:{mesh.port}",
        "secure": config.tls is not None,
        "groups": {name: group.status() for name, group in list(node.groups.items())},
        "peers": peers,
        "counters": dict(mesh.counters),
        "loop_lag_seconds": mesh.keepalive.loop_lag / 1e9,
    }
