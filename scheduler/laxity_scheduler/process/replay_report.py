"""What the command `replay` prints about cycles that were decided again."""

import json
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, Final

import typer

from laxity.cli.exit_codes import FAILED, OK
from laxity.human_time import count_noun
from laxity.safe_text import printable
from laxity_scheduler.plan import Policy
from laxity_scheduler.process.open_policies import find_policy, find_usable_policy
from laxity_scheduler.process.start import load_predictor
from laxity_scheduler.service.learned_models import LearnedModels
from laxity_scheduler.store.journal import ReplayedCycle, iter_decided, replay_cycles
from laxity_scheduler.store.store import Store
from laxity_scheduler.width_comparison import WidthTotals, compare_widths

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


@dataclass(frozen=True, slots=True)
class ReplayRange:
    """Cycles of a journal, and where learned policies that decided them are."""

    url: str
    models: LearnedModels
    first: int = 0
    last: int | None = None

    def find_policy(self, name: str) -> Policy:
        return find_policy(name, self.models)

    def with_models_of(self, store: Store) -> "ReplayRange":
        """These cycles; learned policies are looked for in this store as well."""
        models = replace(self.models, store=store, any_origin=True)
        return replace(self, models=models)


def report_replay(cycles: ReplayRange, *, policy: str, as_json: bool) -> int:
    """Print what differs; 1 if a cycle of this laxity is decided otherwise by its own policy."""
    store = Store.open(cycles.url)
    cycles = cycles.with_models_of(store)
    summary = ReplaySummary(policy)
    try:
        for replayed in replay_cycles(
            store, cycles.find_policy, load_predictor,
            first=min(cycles.first, MAX_CYCLES), last=cycles.last, policy=policy,
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


def report_gain(cycles: ReplayRange, *, policy: str, as_json: bool) -> int:
    """Print how much more or less this policy's widths would have trained than those decided."""
    store = Store.open(cycles.url)
    cycles = cycles.with_models_of(store)
    totals, memory = WidthTotals(), dict[str, Any]()
    try:
        decide = find_usable_policy(policy, cycles.models)
        first = min(cycles.first, MAX_CYCLES)
        for cycle in iter_decided(
            store, cycles.find_policy, load_predictor, first=first, last=cycles.last
        ):
            totals.add(cycle.state.now, compare_widths(decide, cycle, memory))
    finally:
        store.close()
    typer.echo(json.dumps(_gain_json(totals, policy)) if as_json else _gain_text(totals, policy))
    return OK


def _gain_json(totals: WidthTotals, policy: str) -> dict[str, object]:
    return {
        "policy": policy,
        "cycles": totals.cycles,
        "differing": totals.differing,
        "trained": totals.trained,
        "decided_trained": totals.decided_trained,
        "gain": totals.gain,
    }


def _gain_text(totals: WidthTotals, policy: str) -> str:
    cycles = count_noun(totals.cycles, "cycle")
    if not totals.decided_trained:
        return f"{cycles}: nothing trained in them that could be compared"
    return (
        f"{cycles}: {policy} would give other widths in {totals.differing} of them; its widths would "
        f"have trained {1 + totals.gain:.3f} times as much as those decided (predicted)"
    )


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
