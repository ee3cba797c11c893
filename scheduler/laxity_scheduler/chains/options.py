"""Options of the commands about chains, and how their words are read."""

from typing import Annotated

import typer

PricesOption = Annotated[
    str,
    typer.Option(
        help="For a calibrated model: prices of an hour of interruption and of overlap, as 4:1."
    ),
]


def duration_s(text: str, option: str) -> float:
    """Seconds. ValueError names the option."""
    from laxity.durations import parse_duration

    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error
