"""The adapters give what the status says; a missing package is named."""

from __future__ import annotations

import sys

import pytest

from antiphon.errors import UsageError
from antiphon.live.events import Status
from antiphon.live.metrics import Latest, opentelemetry, prometheus

STATUS = Status(
    group="orders",
    me="127.0.0.1:7001",
    standing="active",
    view=3,
    members=("127.0.0.1:7001", "127.0.0.1:7002"),
    lag={"127.0.0.1:7002": 4},
    slowest="127.0.0.1:7002",
    sent=11,
    delivered=23,
    held=5,
    waiting_bytes=100,
    inbox_bytes=200,
    burst_bytes=55_000,
    counts={"packets-sent": 17},
)


def test_prometheus_sees_the_last_status() -> None:
    client = pytest.importorskip("prometheus_client")
    registry, latest = client.CollectorRegistry(), Latest()
    prometheus(latest, registry)
    assert registry.get_sample_value("antiphon_view") is None
    latest(STATUS)
    assert registry.get_sample_value("antiphon_view") == 3
    assert registry.get_sample_value("antiphon_members") == 2
    assert registry.get_sample_value("antiphon_lag", {"member": "127.0.0.1:7002"}) == 4
    assert registry.get_sample_value("antiphon_events_total", {"kind": "packets-sent"}) == 17
    assert registry.get_sample_value("antiphon_events_total", {"kind": "messages-delivered"}) == 23


def test_opentelemetry_sees_the_last_status() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader, latest = InMemoryMetricReader(), Latest()
    opentelemetry(latest, MeterProvider([reader]).get_meter("antiphon"))
    latest(STATUS)
    data = reader.get_metrics_data()
    assert data is not None
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    seen = {metric.name: metric.data.data_points[0].value for metric in metrics}  # type: ignore[union-attr]
    assert seen["antiphon.inbox_bytes"] == 200
    assert seen["antiphon.lag"] == 4
    events = next(metric for metric in metrics if metric.name == "antiphon.events").data.data_points
    assert {point.attributes["kind"]: point.value for point in events} == {
        "messages-sent": 11,
        "messages-delivered": 23,
        "packets-sent": 17,
    }


@pytest.mark.parametrize("package", ["prometheus_client", "opentelemetry.metrics"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match="needs the package"):
        prometheus(Latest()) if package == "prometheus_client" else opentelemetry(Latest(), None)
