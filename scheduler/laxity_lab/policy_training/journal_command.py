"""What `laxity train policy` does with --journal and --start: progress on stderr, errors as sentences."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from laxity.cli.exit_codes import AWAY, FAILED, USAGE, CommandError
from laxity_lab.policy_training.registry_commands import tracking_store


def imitate_journal(
    journal: Any, start: Any, *, seed: int, updates: int
) -> tuple[Any, dict[str, float], str]:
    """A net, its figures, and which cycles it learned from."""
    from laxity_lab.policy_training.journal_choices import learn_from_journal

    with typer.progressbar(length=updates, label="imitating", file=sys.stderr) as bar:
        learned = learn_from_journal(journal, start, seed=seed, updates=updates, tell=bar.update)
    return learned.net, {"journal_choices": learned.choices}, learned.cycles_text


def read_journal_tables(journal: Any) -> Any:
    """Throughput tables of the jobs in a journal. CommandError if none has several widths."""
    from laxity_lab.policy_training.journal_choices import read_curves

    first, cut = journal.split()
    tables = read_curves(journal.iter_cycles(first, cut - 1))
    if not tables:
        message = (
            "no job of the journal has several widths with known epoch times: name --tables DIR"
        )
        raise CommandError(message, code=USAGE)
    return tables


def measure_on_journal(journal: Any, net: Any, *, seed: int) -> dict[str, float]:
    """How the net does on the cycles held out."""
    from laxity_lab.policy_training.journal_choices import measure_net

    held_out = measure_net(net, journal, seed=seed)
    totals = held_out.totals
    figures: dict[str, float] = {
        "held_out_cycles": totals.cycles,
        "held_out_differing": totals.differing,
        "held_out_choices": held_out.choices,
    }
    if held_out.choices:
        figures["held_out_right"] = held_out.right
    if totals.decided_trained:
        figures["held_out_gain"] = totals.gain
    return figures


@contextmanager
def open_journal(source: str, tracking_uri: str) -> Iterator[Any]:
    """A journal to read, None if none is named; what goes wrong with it is a CommandError."""
    if not source:
        yield None
        return
    from laxity_lab.policy_training.journal_choices import JournalError, open_source
    from laxity_scheduler.store.journal import ReplayError
    from laxity_scheduler.store.store import StoreError

    try:
        journal = open_source(source, tracking_store(tracking_uri))
        try:
            yield journal
        finally:
            journal.store.close()
    except JournalError as error:
        raise CommandError(str(error), code=USAGE) from error
    except (StoreError, ReplayError) as error:
        raise CommandError(str(error), code=FAILED) from error


def read_start(name: str, tracking_uri: str) -> tuple[Any, str]:
    """The net of `learned`, `learned:FILE` or `models:/...` to train on from, and its full name.

    An alias becomes the version that it names. CommandError.
    """
    from laxity_scheduler.service.learned_models import LearnedModels, ModelAwayError

    try:
        full_name, trained = LearnedModels(tracking_store(tracking_uri)).load(name)
    except ModelAwayError as error:
        raise CommandError(str(error), code=AWAY) from error
    except ValueError as error:
        raise CommandError(f"--start {name}: {error}", code=USAGE) from error
    return trained.net, full_name
