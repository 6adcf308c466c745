"""`/metrics`, in Prometheus' text format."""

from __future__ import annotations

from collections import Counter

from starlette.responses import Response

from .route import Call, Nothing, Route


async def show_metrics(call: Call[Nothing, Nothing]) -> Response:
    records = call.web.records.newest
    outcomes = Counter(record.outcome for record in records)
    totals = await call.app.ledger.totals(window="lifetime")
    unwritten = call.app.ledger.unwritten
    lines = [
        *_metric("rondel_gateway_recent_requests", "gauge", "The newest requests of the gateway, by outcome."),
        *(f'rondel_gateway_recent_requests{{outcome="{name}"}} {count}' for name, count in sorted(outcomes.items())),
        *_metric("rondel_watchers", "gauge", "Open event streams of conversations."),
        f"rondel_watchers {call.web.feeds.clients}",
        *_metric("rondel_calls_total", "counter", "Calls of models that were charged."),
        f"rondel_calls_total {totals.calls}",
        *_metric("rondel_tokens_total", "counter", "Tokens that were charged."),
        f'rondel_tokens_total{{direction="in"}} {totals.tokens_in}',
        f'rondel_tokens_total{{direction="out"}} {totals.tokens_out}',
        *_metric("rondel_cost_usd_total", "counter", "US dollars, as far as prices are known."),
        f"rondel_cost_usd_total {totals.cost_usd}",
        *_metric("rondel_unwritten_charges", "gauge", "Charges that wait because the disk cannot be written."),
        f"rondel_unwritten_charges {unwritten.charges}",
    ]
    return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4; charset=utf-8")


def _metric(name: str, kind: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {kind}"


metrics = Route("GET", "/metrics", show_metrics, "Metrics for Prometheus.", media="text/plain")
