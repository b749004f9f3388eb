"""What a server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from reviser.serving.scheduler import Scheduler

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
ENDPOINTS = ("/v1/completions", "/v1/models", "/v1/trajectories", "/infill", "/v2/check", "/v2/languages", "/health",
             "/metrics", "/docs", "/openapi.json", "/")  # fmt: skip
"""Paths that are counted by name; whoever asks for others must not make the list longer."""


class _ActionCounter(Collector):
    """Reads what the scheduler has counted."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily("reviser_actions", "Actions of finished texts", self._scheduler.num_actions)


class Meters:
    """The numbers of one server."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "reviser_requests", "Requests by endpoint and status", ["endpoint", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "reviser_request_seconds",
            "Time to the end of an answer",
            ["endpoint"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._gauge("reviser_rows_busy", "Texts that are being decoded", lambda: scheduler.num_decoding)
        self._gauge("reviser_texts_waiting", "Texts that wait for a row", lambda: scheduler.num_waiting)
        self.registry.register(_ActionCounter(scheduler))
        self.requests_active = Gauge("reviser_requests_active", "Requests in work", registry=self.registry)
        self.requests_waiting = Gauge("reviser_requests_waiting", "Requests in the queue", registry=self.registry)
        self.requests_cancelled = Counter(
            "reviser_requests_cancelled", "Requests whose client went away", registry=self.registry
        )

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(name, text, registry=self.registry).set_function(read)

    def count(self, path: str, status: int, seconds: float) -> None:
        endpoint = path if path in ENDPOINTS else "/health" if path.startswith("/health/") else "other"
        self._requests.labels(endpoint, str(status)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self.registry)
