"""The command `replay`: what is printed about cycles that were decided again."""

import json
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final

import typer

from laxity.cli.exit_codes import FAILED, OK
from laxity.safe_text import printable
from laxity_scheduler.process.start import load_predictor, policy_named
from laxity_scheduler.store.journal import ReplayedCycle, replay_cycles
from laxity_scheduler.store.store import Store

SHOWN_CYCLES: Final = 20
MOST_CYCLES: Final = 2**62  # what a database counts to


@dataclass(slots=True)
class Tally:
    """What came of the cycles so far. `differing` are of this laxity, `aged` of other versions."""

    policy: str
    cycles: int = 0
    differing: list[ReplayedCycle] = field(default_factory=list)
    aged: list[ReplayedCycle] = field(default_factory=list)

    def add(self, found: ReplayedCycle) -> list[ReplayedCycle]:
        """Count a cycle; the list it went to, an empty one if it was decided the same."""
        self.cycles += 1
        if found.is_same:
            return []
        ours = found.is_of_this_version or bool(self.policy)
        kind = self.differing if ours else self.aged
        kind.append(found)
        return kind


def replay_all(url: str, *, first: int, last: int | None, policy: str, as_json: bool) -> int:
    """Print what differs; 1 if a cycle of this laxity is decided otherwise by its own policy."""
    store = Store.open(url)
    tally = Tally(policy)
    try:
        for found in replay_cycles(
            store, policy_named, load_predictor,
            first=min(first, MOST_CYCLES), last=last, policy=policy,
        ):  # fmt: skip
            kind = tally.add(found)
            if kind and not as_json and len(kind) <= SHOWN_CYCLES:
                _show(found)
            if tally.differing and not policy:
                break  # what follows rests on it
    finally:
        store.close()
    typer.echo(json.dumps(_json(tally)) if as_json else _summary(tally))
    return FAILED if tally.differing and not policy else OK


def _json(tally: Tally) -> dict[str, object]:
    different = [
        {"cycle": one.cycle, "version": one.version, "lines": list(one.lines)}
        for one in sorted(tally.differing + tally.aged, key=lambda one: one.cycle)
    ]
    return {"cycles": tally.cycles, "version": version("laxity"), "different": different}


def _show(found: ReplayedCycle) -> None:
    by = "" if found.is_of_this_version else f", was decided by {_laxity(found.version)}"
    typer.echo(printable(f"cycle {found.cycle}, policy {found.policy}{by}:"))
    for line in found.lines:
        typer.echo(printable(f"  {line}"))


def _summary(tally: Tally) -> str:
    cycles, policy = tally.cycles, tally.policy
    if not cycles:
        return "no such cycle is in the journal: nothing was decided again"
    if policy:
        return f"{cycles} cycle(s): {policy} would have decided {len(tally.differing)} of them otherwise"
    if tally.differing:
        return f"{cycles} cycle(s) decided again; the last of them differs"
    if tally.aged:
        others = ", ".join(sorted({_laxity(one.version) for one in tally.aged}))
        return (
            f"{cycles} cycle(s) decided again: {len(tally.aged)} of them come out otherwise, and were "
            f"decided by {others}; this is {_laxity(version('laxity'))}"
        )
    return f"{cycles} cycle(s) decided again: every plan is the same, byte for byte"


def _laxity(version_: str) -> str:
    return printable(f"laxity {version_}") if version_ else "an older laxity"
