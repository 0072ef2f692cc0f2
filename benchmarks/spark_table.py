"""The table of the Spark benchmark: medians, spread, and whether the aims are reached."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from engines import PARTITIONS
from rich.table import Table
from spark_members import MEMBERS
from spark_works import QUANTILES, RATE, ideal_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_works import Figures

RATE_AIM = 25_000
ASYNC_AIM = 0.8
LATENCY_AIMS_MS = {"p50": 20.0, "p99": 60.0}


def new_table() -> Table:
    """Make the table, without rows."""
    table = Table(title=f"{MEMBERS} members, concurrency {RATE.concurrency:,} each, {PARTITIONS} partitions")
    for heading in ("what", "Spark (spread)", f"async, {MEMBERS} processes", "naive foreachBatch", "aim", ""):
        table.add_column(heading)
    return table


def add_rate(table: Table, spark: Sequence[Figures], beside: Sequence[Figures], naive: Figures) -> None:
    """Add the rows of the rate."""
    ours, theirs = ([run.rate for run in runs] for runs in (spark, beside))
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    ideal = RATE.records / ideal_s(RATE, MEMBERS)
    table.add_row(
        f"rate: {RATE.records:,} records, {RATE.sleep_s * 1e3:.0f} ms",
        f"{_spread(ours, ',.0f')}/s",
        f"{_spread(theirs, ',.0f')}/s",
        f"{naive.rate:,.0f}/s",
        f"≥ {RATE_AIM:,}/s",
        _verdict(statistics.median(ours) >= RATE_AIM),
    )
    table.add_row(
        "  Spark ÷ async, by pairs",
        _spread(ratios, ".2f"),
        "",
        "",
        f"≥ {ASYNC_AIM}",
        _verdict(statistics.median(ratios) >= ASYNC_AIM),
    )
    parts = (_spread([rate / ideal for rate in rates], ".2f") for rates in (ours, theirs))
    table.add_row(f"  part of the ideal, {ideal:,.0f}/s", *parts, f"{naive.rate / ideal:.4f}")
    table.add_row("  CPU a call", *(f"{_spread([run.cpu_us for run in each], '.0f')} µs" for each in (spark, beside)))
    table.add_row("  RSS max of a member", *(f"{max(run.rss_mib for run in each):.0f} MiB" for each in (spark, beside)))


def add_latency(
    table: Table, rate: int, spark: Sequence[Figures], beside: Sequence[Figures], naive: Figures | None = None
) -> None:
    """Add the rows of the latency under one load."""
    table.add_section()
    for name in QUANTILES:
        ours, theirs = ([run.latency_ms[name] for run in runs] for runs in (spark, beside))
        aim_ms = LATENCY_AIMS_MS.get(name)
        table.add_row(
            f"latency at {rate:,}/s, 5 ms: {name}" if name == "p50" else f"  {name}",
            f"{_spread(ours, '.1f')} ms",
            f"{_spread(theirs, '.1f')} ms",
            "" if naive is None else f"{naive.latency_ms[name]:,.0f} ms",
            "" if aim_ms is None else f"< {aim_ms:.0f} ms",
            "" if aim_ms is None else _verdict(statistics.median(ours) < aim_ms),
        )


def _spread(values: Sequence[float], form: str) -> str:
    """Write the median, and the spread if there is one."""
    middle = format(statistics.median(values), form)
    return f"{middle} ({min(values):{form}}-{max(values):{form}})" if len(values) > 1 else middle


def _verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"
