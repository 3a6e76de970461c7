"""Adapters of a group's status for Prometheus and OpenTelemetry; neither is needed unless it is used.

from antiphon.live.metrics import Latest, prometheus
latest = Latest()
prometheus(latest)                                    # registers a collector
antiphon.join("orders", ..., metrics=latest)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.errors import UsageError
from antiphon.live.events import Status

_GAUGES = {
    "members": "members of the present view",
    "view": "number of the present view",
    "held": "bursts in the protocol's buffers",
    "waiting_bytes": "bytes submitted and held back by the window",
    "inbox_bytes": "bytes delivered and not yet taken by the application",
    "burst_bytes": "how large bursts may be now",
}


class Latest:
    """Keeps the last status of a group; give it as `metrics`."""

    def __init__(self) -> None:
        self.status: Status | None = None

    def __call__(self, status: Status) -> None:
        """Take a status."""
        self.status = status

    def gauges(self) -> dict[str, float]:
        """Give what goes up and down, by name."""
        if self.status is None:
            return {}
        values = {name: getattr(self.status, name) for name in _GAUGES if name != "members"}
        return {"members": len(self.status.members), **values}

    def lags(self) -> dict[str, float]:
        """Give how many bursts each member lacks; one that was not heard from lacks all that are held."""
        if self.status is None:
            return {}
        return {member: self.status.held if lacks is None else lacks for member, lacks in self.status.lag.items()}

    def counts(self) -> dict[str, int]:
        """Give what only grows, by name."""
        if self.status is None:
            return {}
        return {"messages-sent": self.status.sent, "messages-delivered": self.status.delivered, **self.status.counts}


def prometheus(latest: Latest, registry: Any = None) -> Any:
    """Register a collector of a group's metrics, with Prometheus's own registry unless another is given."""
    try:
        from prometheus_client import REGISTRY
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError:
        raise UsageError("prometheus: needs the package prometheus-client") from None

    class Collector:
        def collect(self) -> Iterator[Any]:
            """Give the metrics of the last status."""
            for name, value in latest.gauges().items():
                yield GaugeMetricFamily(f"antiphon_{name}", _GAUGES[name], value=value)
            lag = GaugeMetricFamily("antiphon_lag", "bursts that a member lacks", labels=["member"])
            for member, lacks in latest.lags().items():
                lag.add_metric([member], lacks)
            yield lag
            events = CounterMetricFamily("antiphon_events", "what happened, by kind", labels=["kind"])
            for kind, count in latest.counts().items():
                events.add_metric([kind], count)
            yield events

    collector = Collector()
    (REGISTRY if registry is None else registry).register(collector)
    return collector


def opentelemetry(latest: Latest, meter: Any) -> None:
    """Make observable instruments of a group's metrics on a meter."""
    try:
        from opentelemetry.metrics import Observation
    except ImportError:
        raise UsageError("opentelemetry: needs the package opentelemetry-api") from None
    for name, about in _GAUGES.items():
        meter.create_observable_gauge(
            f"antiphon.{name}",
            [lambda _, name=name: [Observation(latest.gauges()[name])] if latest.status else []],
            description=about,
        )
    meter.create_observable_gauge(
        "antiphon.lag",
        [lambda _: [Observation(lacks, {"member": member}) for member, lacks in latest.lags().items()]],
        description="bursts that a member lacks",
    )
    meter.create_observable_counter(
        "antiphon.events",
        [lambda _: [Observation(count, {"kind": kind}) for kind, count in latest.counts().items()]],
        description="what happened, by kind",
    )
