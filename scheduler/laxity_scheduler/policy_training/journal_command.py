"""What `laxity train policy` does with --journal and --start: progress on stderr, errors as sentences."""

import sys
from pathlib import Path
from typing import Any

import typer

from laxity.cli.exit_codes import AWAY, FAILED, USAGE, CommandError
from laxity_scheduler.policy_training.registry_commands import tracking_store


def imitate_journal(
    source: str, start: Any, *, seed: int, updates: int
) -> tuple[Any, dict[str, float], str]:
    """A net, its figures, and which cycles it learned from."""
    from laxity_scheduler.policy_training.journal_choices import JournalError, open_source
    from laxity_scheduler.policy_training.journal_imitation import learn_from_journal

    try:
        journal = open_source(source)
    except JournalError as error:
        raise CommandError(str(error), code=USAGE) from error
    try:
        with typer.progressbar(length=updates, label="imitating", file=sys.stderr) as bar:
            learned = learn_from_journal(
                journal, start, seed=seed, updates=updates, tell=bar.update
            )
    except JournalError as error:
        raise CommandError(str(error), code=USAGE) from error
    except RuntimeError as error:  # the store, or a damaged cycle
        raise CommandError(str(error), code=FAILED) from error
    finally:
        journal.store.close()
    totals = learned.held_out.totals
    figures: dict[str, float] = {
        "journal_choices": learned.choices,
        "cycles_held_out": totals.cycles,
        "cycles_held_out_differing": totals.differing,
    }
    if learned.held_out.choices:
        figures["right_on_cycles_held_out"] = learned.held_out.right
    if totals.decided_trained:
        figures["gain_on_cycles_held_out"] = totals.gain
    return learned.net, figures, f"cycles {learned.first} to {learned.held_out_from - 1}"


def read_start(name: str, tracking_uri: str) -> Any:
    """The net of `learned`, `learned:FILE` or `models:/...`, to train on from. CommandError."""
    import tempfile

    from laxity_scheduler.policy_models import LearnedModels, ModelAwayError

    with tempfile.TemporaryDirectory() as folder:
        models = LearnedModels(Path(folder), tracking_store(tracking_uri))
        try:
            return models.load(name).net
        except ModelAwayError as error:
            raise CommandError(str(error), code=AWAY) from error
        except ValueError as error:
            raise CommandError(f"--start {name}: {error}", code=USAGE) from error
