"""The supervised phase on a live service: a net that decides as what decided in the journal."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from laxity.instants import format_rfc3339
from laxity_lab.policy_training.journal_choices import (
    JournalError,
    JournalSource,
    collect_journal,
)
from laxity_scheduler.learned.scoring_net import ScoringNet

LEAST_CHOICES: Final = 20
RATE_FROM_START: Final = 0.001  # of a net that has learned before
NOTHING_TO_LEARN: Final = (
    "the journal has {choices} choices among widths in {cycles} cycles, and {least} are needed: "
    "give jobs several widths (workers 1..8), and keep more cycles (laxity up --kept-cycles)"
)


@dataclass(frozen=True, slots=True)
class JournalImitation:
    """A net, and on how many choices of which cycles it learned, decided from when to when."""

    net: ScoringNet
    choices: int
    first: int
    last: int
    first_at: float
    last_at: float

    @property
    def cycles_text(self) -> str:
        """Which cycles, for people: numbers begin anew in another service's journal, dates do not."""
        instants = (format_rfc3339(at, "seconds") for at in (self.first_at, self.last_at))
        return f"cycles {self.first} to {self.last} ({' to '.join(instants)})"


def learn_from_journal(
    source: JournalSource,
    start: ScoringNet | None = None,
    *,
    seed: int,
    updates: int,
    tell: Callable[[int], None] = lambda _: None,
) -> JournalImitation:
    """Learn from all but the last cycles; a net given goes on from its weights.

    JournalError if there is too little to learn from; errors as of `iter_cycles`.
    """
    from laxity_lab.policy_training import torch_net

    first, cut = source.split()
    choices = collect_journal(source.iter_trusted(first, cut - 1), seed=seed)
    if len(choices) < LEAST_CHOICES:
        raise JournalError(
            NOTHING_TO_LEARN.format(choices=len(choices), cycles=cut - first, least=LEAST_CHOICES)
        )
    net = torch_net.make_net(seed) if start is None else torch_net.write_net(start)
    rate = torch_net.RATE if start is None else RATE_FROM_START
    torch_net.imitate(net, choices, updates=updates, seed=seed, rate=rate, tell=tell)
    decided_at = source.decided_at(first), source.decided_at(cut - 1)
    return JournalImitation(torch_net.read_net(net), len(choices), first, cut - 1, *decided_at)
