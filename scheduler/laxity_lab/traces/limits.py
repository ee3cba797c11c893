"""Numbers that make a cluster and a run. Others are refused by option, value and what is allowed.

The upper ends are far above any cluster or study; beyond them a run would not end in a lifetime.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from laxity_lab.traces.inference_load import read_load
from laxity_lab.traces.trace_lookup import trace_at

MOST: Final = 100_000
MOST_S: Final = 1e8  # three years
MOST_ERROR: Final = 5.0
MOST_RUNS: Final = 100_000
WHOLE: Final[dict[str, tuple[int, int, str, str]]] = {
    "--nodes": (1, MOST, "a cluster has", "nodes"),
    "--gpus-per-node": (1, MOST, "a node has", "GPUs"),
    "--inference-nodes": (1, MOST, "a fleet has", "nodes"),
    "--seed": (0, 2**31 - 1, "a seed is a whole number from", ""),
    "--seeds": (1, MOST_RUNS, "there may be", "seeds"),
    "--batch": (0, MOST, "a batch has", "jobs, 0 is the whole trace"),
    "--processes": (1, 1_024, "there may be", "processes"),
}
REAL: Final[dict[str, tuple[float, float, str, str]]] = {
    "--error": (0.0, MOST_ERROR, "it is a share from", "(0.2 is 20 %)"),
    "--restart-cost": (0.0, MOST_S, "it may be", "s"),
    "--epoch-s": (1.0, MOST_S, "an epoch has", "s"),
    "--fails-s": (0.0, MOST_S, "it may be", "s, 0 is never"),
}


def whole(option: str, values: Iterable[int]) -> None:
    """ValueError for the first that is out of its range."""
    least, most, before, after = WHOLE[option]
    for value in values:
        if not least <= value <= most:
            message = f"{option} is {value}: {before} {least:,} to {most:,} {after}".rstrip()
            raise ValueError(message)


def check_counts(
    nodes: Sequence[int],
    gpus_per_node: int,
    seed: int,
    seeds: int,
    batch: int,
    *,
    processes: int | None,
) -> None:
    """ValueError for the first option of `laxity simulate` that is out of its range."""
    whole("--nodes", nodes)
    whole("--gpus-per-node", [gpus_per_node])
    whole("--seed", [seed])
    whole("--seeds", [seeds])
    whole("--batch", [batch])
    whole("--processes", [] if processes is None else [processes])


def real(option: str, values: Iterable[float]) -> None:
    """ValueError for the first that is out of its range, or no number."""
    least, most, before, after = REAL[option]
    for value in values:
        if not least <= value <= most:  # neither is true of nan
            raise ValueError(f"{option} is {value:g}: {before} {least:g} to {most:,g} {after}")


def failing(fails_s: float, epoch_s: float) -> None:
    """Nodes that fail sooner than an epoch ends let no job come to its end."""
    real("--epoch-s", [epoch_s])
    real("--fails-s", [fails_s])
    if 0.0 < fails_s < epoch_s:
        raise ValueError(
            f"--fails-s is {fails_s:g}: a node is up for at least one epoch on average "
            f"(--epoch-s {epoch_s:g}), or no job would ever end; 0 is never"
        )


def runs(policies: Sequence[str], *others: int) -> None:
    """ValueError for a sweep of no run, or of too many."""
    if not all(policies):
        raise ValueError("--policy has an empty name: separate names by single commas")
    run_count = math.prod((len(policies), *others))
    if run_count > MOST_RUNS:
        message = f"policies x nodes x errors x seeds are {run_count:,} runs: at most {MOST_RUNS:,}"
        raise ValueError(message)


def window(from_at: str, until_at: str) -> tuple[float, float]:
    """The instants of --from and --until; without one, there is no end on that side."""
    begin = instant(from_at, "--from") if from_at else -math.inf
    end = instant(until_at, "--until") if until_at else math.inf
    if end < begin:
        message = f"--until {until_at} is before --from {from_at}: no job can be between them"
        raise ValueError(message)
    return begin, end


def instant(text: str, option: str = "") -> float:
    """An ISO date (UTC without an offset) or seconds."""
    what = f"{option} is {text!r}," if option else f"{text!r} is"
    try:
        value = float(text)
    except ValueError:
        pass
    else:
        if math.isfinite(value):
            return value
        message = f"{what} no instant: a number of seconds, or an ISO date such as 2017-10-01"
        raise ValueError(message)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"{what} neither a number of seconds nor an ISO date such as 2017-10-01"
        raise ValueError(message) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def inference_load(load: Path | None, nodes: int | None, *, pooled: bool) -> None:
    """ValueError if there is no such load, or its nodes do not go with the others."""
    whole("--inference-nodes", [] if nodes is None else [nodes])
    if load is None and nodes is not None:
        raise ValueError("--inference-nodes needs --inference, their load")
    if load is not None and pooled:
        raise ValueError("--inference lends whole nodes: leave out --pooled")
    if load is not None:
        read_load(trace_at(load))
