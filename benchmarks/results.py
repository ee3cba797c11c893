"""What benchmarks measure: named figures, and how they are shown."""

import json
from collections.abc import Mapping
from typing import TypedDict


class Metric(TypedDict):
    """One measured figure; `ratio` is to the baseline, None without one."""

    value: float
    unit: str
    baseline: float | None
    ratio: float | None


def figure(value: float, unit: str, baseline: float | None = None) -> Metric:
    ratio = value / baseline if baseline else None
    return {"value": value, "unit": unit, "baseline": baseline, "ratio": ratio}


def show(figures: Mapping[str, Metric], *, as_json: bool, beside: str = "the baseline") -> None:
    """One JSON object, or a line per figure; `beside` says what a ratio is to."""
    import typer

    if as_json:
        typer.echo(json.dumps(figures))
        return
    longest = max(map(len, figures), default=0)
    for name, figure in figures.items():
        ratio = "" if figure["ratio"] is None else f"  {figure['ratio']:,.2f} x {beside}"
        typer.echo(f"{name:<{longest}} {figure['value']:>14,.2f} {figure['unit']}{ratio}")
