"""Print figures of the code's structure beside those recorded and their goals: `make metrics`.

The exit status is 1 where a figure is worse than recorded and misses its goal. `ARGS=--record`
writes the figures into tests/metrics/recorded.toml; where one became worse, say what for:
`ARGS='--record "unmodified training code"'`. `ARGS=--list` names what is counted.
"""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from tests.metrics.figures import Figure, lines_in_no_wheel, measure_figures

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).with_name("recorded.toml")
ELSEWHERE = """
These need a run: the tests' time (.laxity/test/*.xml), decisions and acting (python -m benchmarks and
docs/speed.md), deadlines met (python -m studies), plans (make oracle)."""
ADVICE = """Make it smaller. If it is worth its lines, record it with what for, in the same commit:
make metrics ARGS='--record "unmodified training code"'. An enforced goal changes by hand."""
ROW = re.compile(
    r'"(?P<name>.+?)" = { recorded = (?P<recorded>\d+), goal = (?P<goal>\d+)(?P<why>(, why = ".*")?) }'
)


def main() -> int:
    """Print the table, or record it; the exit status."""
    parser = argparse.ArgumentParser(prog="make metrics", description=__doc__)
    parser.add_argument("--list", action="store_true", help="list what each figure counts")
    parser.add_argument("--record", nargs="?", const="", metavar="WHY", help="write the figures")
    options = parser.parse_args()
    figures, text = measure_figures(ROOT), RECORDED.read_text()
    lines = [f"{'':45} {'now':>7} {'recorded':>9} {'goal':>7}"]
    for name, row in tomllib.loads(text)["figures"].items():
        value, places = figures[name]
        now = f"{name:45} {value:7,} {row['recorded']:9,} {row['goal']:7,}  {row.get('why', '')}"
        lines += [now.rstrip(), *(f"    {place}" for place in places if options.list)]
    beside = lines_in_no_wheel(ROOT)
    lines += [f"{'lines of studies and benchmarks, in no wheel':45} {beside.value:7,}"]
    lines += [f"    {place}" for place in beside.places if options.list]
    problems = worse_figures(figures, text)
    if options.record or (options.record == "" and not problems):
        text = record(figures, text, options.record)
        RECORDED.write_text(text)
        problems = worse_figures(figures, text)
    print(*lines, ELSEWHERE, *problems, sep="\n")  # noqa: T201 - a command
    return bool(problems)


def worse_figures(figures: Mapping[str, Figure], text: str) -> list[str]:
    """A text for each figure that is too large, with the first places, and what to do about it."""
    held = tomllib.loads(text)
    texts = []
    for name, row in held["figures"].items():
        allowed = row["goal"] if held["enforce_goals"] else max(row["goal"], row["recorded"])
        if figures[name].value > allowed:
            texts.append(f"{name}: {figures[name].value:,}, allowed {allowed:,}")
            texts += [f"    {place}" for place in figures[name].places[:5]]
    return [*texts, ADVICE] if texts else []


def record(figures: Mapping[str, Figure], text: str, why: str) -> str:
    """The file with the figures of now, and why where one became worse; goals and comments stay."""

    def rewrite(row: re.Match[str]) -> str:
        value, before = figures[row["name"]].value, int(row["recorded"])
        worse = value > max(before, int(row["goal"]))
        reason = f", why = {json.dumps(f'{why}, +{value - before:,}')}" if worse else row["why"]
        return f'"{row["name"]}" = {{ recorded = {value}, goal = {row["goal"]}{reason} }}'

    return ROW.sub(rewrite, text)


if __name__ == "__main__":
    sys.exit(main())
