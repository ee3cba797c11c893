"""How large and how long a batch script says that its job is, before anything is submitted."""

import argparse
import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from laxity_scheduler.slurm.slurm_tables import parse_limit_s

DIRECTIVE: Final = "#SBATCH"
ENV_LIMIT: Final = "SBATCH_TIMELIMIT"  # wins over the script, as in sbatch
MINUTE_S: Final = 60.0


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
    tokens = [word for line in directives for word in _words_of(line)]
    try:
        options, _ = parser.parse_known_args(tokens)
    except argparse.ArgumentError:  # an option without its value: sbatch says so itself
        return ScriptShape(None, None)
    limit = environ.get(ENV_LIMIT) or options.time
    return ScriptShape(int(options.nodes) if options.nodes.isdecimal() else None, _limit_s(limit))


def _words_of(line: str) -> list[str]:
    try:
        return shlex.split(line.removeprefix(DIRECTIVE), comments=True)
    except ValueError:  # an open quote
        return []


def _limit_s(text: str) -> float | None:
    """A number alone is minutes; Slurm rounds up to whole ones. None without a limit."""
    seconds = parse_limit_s(f"{text}:00" if text.isdecimal() else text)
    if not text or not 0.0 < seconds < math.inf:
        return None
    return MINUTE_S * math.ceil(seconds / MINUTE_S)
