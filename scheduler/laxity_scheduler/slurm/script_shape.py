"""How large and how long a batch script says that its job is, before anything is submitted."""

import argparse
import math
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from laxity_scheduler.chains.time_limits import parse_time_limit_s
from laxity_scheduler.model.job import MINUTE_S

DIRECTIVE: Final = "#SBATCH"
ENV_LIMIT: Final = "SBATCH_TIMELIMIT"  # wins over the script, as in sbatch


@dataclass(frozen=True, slots=True)
class ScriptShape:
    """None: the script does not say it, and the partition's default or other options decide."""

    nodes: int | None
    limit_s: float | None


def read_shape(directives: Iterable[str], environ: Mapping[str, str]) -> ScriptShape:
    """What these lines say; of an option that is there twice the last one counts, as in sbatch."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-N", "--nodes", default="")
    parser.add_argument("-t", "--time", default="")
    tokens = [word for line in directives for word in split_directive(line)]
    try:
        options, _ = parser.parse_known_args(tokens)
    except argparse.ArgumentError:  # an option without its value: sbatch says so itself
        return ScriptShape(None, None)
    limit = environ.get(ENV_LIMIT) or options.time
    return ScriptShape(int(options.nodes) if options.nodes.isdecimal() else None, _limit_s(limit))


def split_directive(line: str) -> list[str]:
    """The options in one `#SBATCH` line; none where sbatch cannot read it either."""
    try:
        return shlex.split(line.removeprefix(DIRECTIVE), comments=True)
    except ValueError:  # an open quote
        return []


def _limit_s(text: str) -> float | None:
    """Slurm rounds up to whole minutes. None without a limit: 0 is none, too."""
    with suppress(ValueError):
        seconds = parse_time_limit_s(text)
        if 0.0 < seconds < math.inf:
            return MINUTE_S * math.ceil(seconds / MINUTE_S)
    return None
