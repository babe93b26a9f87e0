"""Prometheus metrics, on loopback: the numbers in the status of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from ordercast.errors import OrdercastError, UsageError


class Metrics:
    """Serves /metrics from a thread of its own; the node is only read."""

    def __init__(self, place: str, status: Callable[[], dict[str, Any]]) -> None:
        try:
            self._client: Any = import_module("prometheus_client")
            self._core: Any = import_module("prometheus_client.core")
        except ImportError as error:
            raise UsageError(
                'metrics need prometheus-client: pip install "ordercast[net]"'
            ) from error
        self._status = status
        registry = self._client.CollectorRegistry()
        registry.register(self)
        host, _, port = place.rpartition(":")
        try:
            self._server, self._thread = self._client.start_http_server(
                int(port), addr=host.strip("[]"), registry=registry
            )
        except OSError as error:
            raise OrdercastError(f"cannot serve metrics on {place}: {error.strerror}") from error

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def collect(self) -> Iterator[Any]:
        """What Prometheus asks a collector for."""
        status = self._status()
        gauge, counter = self._core.GaugeMetricFamily, self._core.CounterMetricFamily
        events = counter("ordercast_events", "What happened at this node", labels=["kind"])
        for kind, value in sorted(status["counters"].items()):
            events.add_metric([kind], value)
        yield events
        lag = gauge("ordercast_loop_lag_seconds", "How late the event loop was at its latest")
        lag.add_metric([], status["loop_lag_seconds"])
        yield lag
        peers = gauge("ordercast_peer_connected", "1 while there is a connection", labels=["peer"])
        underway = gauge("ordercast_link_bytes", "Bytes not acknowledged", labels=["peer"])
        for name, peer in sorted(status["peers"].items()):
            peers.add_metric([name], int(peer["connected"]))
            underway.add_metric([name], peer["link_bytes"])
        yield peers
        yield underway
        members = gauge("ordercast_group_members", "Members in the view", labels=["group"])
        waiting = gauge("ordercast_group_waiting", "Messages not taken yet", labels=["group"])
        updates = gauge(
            "ordercast_group_updating", "1 while it may send by a ticket", labels=["group"]
        )
        formed = gauge(
            "ordercast_group_formation", "1 for the one it is in", labels=["group", "formation"]
        )
        counters = gauge("ordercast_group", "What its protocol counts", labels=["group", "what"])
        for name, group in sorted(status["groups"].items()):
            members.add_metric([name], len(group["members"]))
            waiting.add_metric([name], group["waiting_in"])
            if group["updating"] is not None:
                valid = group["updating"]["ticket"] is not None
                updates.add_metric([name], int(valid and not group["updating"]["suspended"]))
            if group["formation"]:
                formed.add_metric([name, group["formation"]], 1)
            for what, value in group["counters"].items():
                counters.add_metric([name, what], value)
        yield members
        yield waiting
        yield updates
        yield formed
        yield counters
