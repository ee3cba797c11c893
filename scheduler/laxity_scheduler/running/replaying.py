"""The command `replay`: what is printed about cycles that were decided again."""

import json
from typing import Final

import typer

from laxity.exits import FAILED, OK
from laxity_scheduler.memory.journal import replay
from laxity_scheduler.memory.store import Store
from laxity_scheduler.running.start import load_predictor, policy_named

SHOWN_CYCLES: Final = 20
MOST_CYCLES: Final = 2**62  # what a database counts to


def replay_all(url: str, *, first: int, last: int | None, policy: str, as_json: bool) -> int:
    """Print what differs; 1 if a cycle is decided otherwise by the policy that decided it."""
    store = Store.open(url)
    first = min(first, MOST_CYCLES)
    cycles = 0
    different: list[dict[str, object]] = []
    try:
        for found in replay(
            store, policy_named, load_predictor, first=first, last=last, policy=policy
        ):
            cycles += 1
            if found.same:
                continue
            different.append({"cycle": found.cycle, "lines": list(found.lines)})
            if not as_json and len(different) <= SHOWN_CYCLES:
                _show(found.cycle, found.policy, found.lines)
            if not policy:
                break  # what follows rests on it
    finally:
        store.close()
    if as_json:
        typer.echo(json.dumps({"cycles": cycles, "different": different}))
    else:
        typer.echo(_summary(cycles, len(different), policy))
    return FAILED if different and not policy else OK


def _show(cycle: int, policy: str, lines: tuple[str, ...]) -> None:
    typer.echo(f"cycle {cycle}, policy {policy}:")
    for line in lines:
        typer.echo(f"  {line}")


def _summary(cycles: int, different: int, policy: str) -> str:
    if not cycles:
        return "no such cycle is in the journal: nothing was decided again"
    if policy:
        return f"{cycles} cycle(s): {policy} would have decided {different} of them otherwise"
    if different:
        return f"{cycles} cycle(s) decided again; the last of them differs"
    return f"{cycles} cycle(s) decided again: every plan is the same, byte for byte"
