"""Reads the flags of `bench serve` into what is run: a level of load for each run, and fields."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pegainfer_bench.report import METRICS
from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from pegainfer_bench.serve_options import ServeBenchOptions


class LoadLevel(NamedTuple):
    """The load of one run.

    Attributes:
        num_prompts: Requests.
        request_rate: Requests a second; infinite for all at once.
        max_concurrency: Most under way, None for no limit.
    """

    num_prompts: int
    request_rate: float
    max_concurrency: int | None

    @property
    def is_unlimited(self) -> bool:
        """Whether all requests are sent at once."""
        return self.max_concurrency is None and math.isinf(self.request_rate)

    @property
    def name(self) -> str:
        """For file names and headings."""
        parts = []
        if math.isfinite(self.request_rate):
            parts.append(f"rate {self.request_rate:g}")
        if self.max_concurrency is not None:
            parts.append(f"concurrency {self.max_concurrency}")
        return ", ".join(parts) or "all at once"


def load_levels(options: ServeBenchOptions) -> list[LoadLevel]:
    """One level, or those of a sweep.

    Raises:
        CommandFault: A sweep's numbers are none, or flags are at odds.
    """
    plain = LoadLevel(options.num_prompts, options.request_rate, options.max_concurrency)
    if options.sweep_concurrency is not None and options.sweep_rate is not None:
        raise CommandFault("give --sweep-concurrency or --sweep-rate, not both")
    if options.sweep_concurrency is not None:
        counts = _numbers("--sweep-concurrency", options.sweep_concurrency, whole=True)
        factor = options.num_prompts_factor
        return [
            plain._replace(
                max_concurrency=int(count),
                num_prompts=int(count) * factor if factor else options.num_prompts,
            )
            for count in counts
        ]
    if options.num_prompts_factor is not None:
        raise CommandFault("--num-prompts-factor needs --sweep-concurrency")
    if options.sweep_rate is not None:
        rates = _numbers("--sweep-rate", options.sweep_rate, whole=False)
        return [plain._replace(request_rate=rate) for rate in rates]
    return [plain]


def _numbers(flag: str, text: str, *, whole: bool) -> list[float]:
    numbers = []
    for word in text.split(","):
        try:
            number = float(word)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0) or (whole and number % 1):
            kind = "whole number" if whole else "number"
            raise CommandFault(f"{flag} {text}: {word!r} is not a {kind} above 0")
        numbers.append(number)
    return numbers


def request_fields(options: ServeBenchOptions, model: str) -> dict[str, object]:
    """What every request's body holds beside its prompt and length.

    Raises:
        CommandFault: `--extra-body` is no JSON object.
    """
    ignore_eos = options.ignore_eos
    if ignore_eos is None:
        ignore_eos = options.dataset_name == "random"
    fields: dict[str, object] = {"model": model, "temperature": options.temperature}
    if ignore_eos:
        fields["ignore_eos"] = True
    for name in ("top_p", "top_k", "min_p", *_PENALTIES):
        value = getattr(options, name)
        if value is not None:
            fields[name] = value
    if options.logprobs is not None:
        chat = {"logprobs": True, "top_logprobs": options.logprobs}
        fields.update(chat if options.is_chat else {"logprobs": options.logprobs})
    if options.extra_body is not None:
        try:
            fields.update(msgspec.json.decode(options.extra_body, type=dict[str, object]))
        except msgspec.DecodeError as error:
            raise CommandFault(f"--extra-body {options.extra_body}: {error}") from error
    return fields


_PENALTIES = ("frequency_penalty", "presence_penalty", "repetition_penalty")


def shown_metrics(options: ServeBenchOptions) -> list[str]:
    """Latencies of the table.

    Raises:
        CommandFault: One is unknown.
    """
    names = options.percentile_metrics.split(",")
    for name in names:
        if name not in METRICS:
            raise CommandFault(
                f"--percentile-metrics {options.percentile_metrics}: {name!r} is not one of "
                f"{', '.join(METRICS)}"
            )
    return names


def headers(options: ServeBenchOptions, api_key: str | None) -> dict[str, str]:
    """HTTP headers from flags.

    Raises:
        CommandFault: One is not NAME=VALUE, or would break out of its line.
    """
    found = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    for word in options.header:
        name, equals, value = word.partition("=")
        if not (name and equals) or any(c in word for c in "\r\n") or " " in name or ":" in name:
            raise CommandFault(f"--header {word!r}: expected NAME=VALUE")
        found[name] = value
    return found
