"""Prometheus text format 0.0.4. Knows names and labels, not what is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_server.metrics.histogram import Histogram

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
PREFIX = "pegainfer:"


class Exposition:
    """One scrape's answer, built family by family."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        """Start; `labels` go on every sample."""
        self._labels = dict(labels)
        self._lines: list[str] = []

    def gauge(self, name: str, help_text: str, value: float) -> None:
        """A value of now."""
        self._head(name, help_text, "gauge")
        self._sample(name, value)

    def gauges(self, name: str, help_text: str, label: str, values: Mapping[str, float]) -> None:
        """Values of now that differ in one label."""
        self._head(name, help_text, "gauge")
        for key, value in values.items():
            self._sample(name, value, {label: key})

    def info(self, name: str, help_text: str, labels: Mapping[str, str]) -> None:
        """Facts as labels of a constant 1."""
        self._head(name, help_text, "gauge")
        self._sample(name, 1, labels)

    def counter(self, name: str, help_text: str, value: float) -> None:
        """A value that only grows; the name ends in `_total`."""
        self._head(name, help_text, "counter")
        self._sample(name, value)

    def counters(self, name: str, help_text: str, label: str, values: Mapping[str, float]) -> None:
        """Counters that differ in one label; nothing at all when there are none yet."""
        if not values:
            return
        self._head(name, help_text, "counter")
        for key, value in values.items():
            self._sample(name, value, {label: key})

    def histogram(self, name: str, help_text: str, histogram: Histogram) -> None:
        """Buckets, sum and count."""
        self._head(name, help_text, "histogram")
        for bound, count in histogram.buckets():
            self._sample(f"{name}_bucket", count, {"le": bound})
        self._sample(f"{name}_sum", histogram.sum)
        self._sample(f"{name}_count", histogram.count)

    def encode(self) -> bytes:
        """The whole text."""
        return ("\n".join(self._lines) + "\n").encode()

    def _head(self, name: str, help_text: str, kind: str) -> None:
        self._lines.append(f"# HELP {PREFIX}{name} {help_text}")
        self._lines.append(f"# TYPE {PREFIX}{name} {kind}")

    def _sample(self, name: str, value: float, extra: Mapping[str, str] | None = None) -> None:
        labels = {**self._labels, **(extra or {})}
        text = ",".join(f'{key}="{_escape(value)}"' for key, value in labels.items())
        self._lines.append(f"{PREFIX}{name}{{{text}}} {value}")


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
