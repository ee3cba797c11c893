"""What the command `replay` prints about cycles that were decided again."""

import json
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final

import typer

from laxity.cli.exit_codes import FAILED, OK
from laxity.human_time import count_noun
from laxity.safe_text import printable
from laxity_scheduler.process.start import find_policy, load_predictor
from laxity_scheduler.store.journal import ReplayedCycle, replay_cycles
from laxity_scheduler.store.store import Store

SHOWN_CYCLES: Final = 20
MAX_CYCLES: Final = 2**62  # what a database counts to


@dataclass(slots=True)
class ReplaySummary:
    """The cycles so far. `differing` ones were decided by this version, `aged` ones by others."""

    policy: str
    cycles: int = 0
    differing: list[ReplayedCycle] = field(default_factory=list)
    aged: list[ReplayedCycle] = field(default_factory=list)

    def add_cycle(self, replayed: ReplayedCycle) -> list[ReplayedCycle]:
        """Count a cycle; returns the list that it was added to, [] if it was decided the same."""
        self.cycles += 1
        if replayed.is_same:
            return []
        ours = replayed.is_of_this_version or bool(self.policy)
        kind = self.differing if ours else self.aged
        kind.append(replayed)
        return kind


def report_replay(url: str, *, first: int, last: int | None, policy: str, as_json: bool) -> int:
    """Print what differs; 1 if a cycle of this laxity is decided otherwise by its own policy."""
    store = Store.open(url)
    summary = ReplaySummary(policy)
    try:
        for replayed in replay_cycles(
            store, find_policy, load_predictor,
            first=min(first, MAX_CYCLES), last=last, policy=policy,
        ):  # fmt: skip
            kind = summary.add_cycle(replayed)
            if kind and not as_json and len(kind) <= SHOWN_CYCLES:
                _print_cycle(replayed)
            if summary.differing and not policy:
                break  # what follows rests on it
    finally:
        store.close()
    typer.echo(json.dumps(_summary_json(summary)) if as_json else _summary_text(summary))
    return FAILED if summary.differing and not policy else OK


def _summary_json(summary: ReplaySummary) -> dict[str, object]:
    different = [
        {"cycle": cycle.cycle, "version": cycle.version, "lines": list(cycle.lines)}
        for cycle in sorted(summary.differing + summary.aged, key=lambda cycle: cycle.cycle)
    ]
    return {"cycles": summary.cycles, "version": version("laxity"), "different": different}


def _print_cycle(replayed: ReplayedCycle) -> None:
    by = (
        "" if replayed.is_of_this_version else f", was decided by {_version_text(replayed.version)}"
    )
    typer.echo(printable(f"cycle {replayed.cycle}, policy {replayed.policy}{by}:"))
    for line in replayed.lines:
        typer.echo(printable(f"  {line}"))


def _summary_text(summary: ReplaySummary) -> str:
    cycles, policy = summary.cycles, summary.policy
    if not cycles:
        return "no such cycle is in the journal: nothing was decided again"
    if policy:
        return f"{count_noun(cycles, 'cycle')}: {policy} would have decided {len(summary.differing)} of them otherwise"
    if summary.differing:
        return f"{count_noun(cycles, 'cycle')} decided again; the last of them differs"
    if summary.aged:
        others = ", ".join(sorted({_version_text(cycle.version) for cycle in summary.aged}))
        return (
            f"{count_noun(cycles, 'cycle')} decided again: {len(summary.aged)} of them come out otherwise, and were "
            f"decided by {others}; this is {_version_text(version('laxity'))}"
        )
    return f"{count_noun(cycles, 'cycle')} decided again: every plan is the same, byte for byte"


def _version_text(version_: str) -> str:
    return printable(f"laxity {version_}") if version_ else "an older laxity"
