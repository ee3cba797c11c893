"""Learning from the journal of a live service: what is imitated, what is held out, and what is refused."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from laxity.cli.exit_codes import FAILED, USAGE, CommandError
from laxity.instants import format_rfc3339
from laxity_lab.policy_training.journal_choices import (
    JournalError,
    JournalSource,
    collect_journal,
    measure_net,
    read_curves,
)
from laxity_lab.policy_training.journal_command import open_journal, read_journal_tables
from laxity_lab.policy_training.made_jobs import ArrivalMix, make_trace
from laxity_lab.policy_training.slot_environment import choose_slot_s
from laxity_lab.policy_training.teacher_samples import Choice
from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_scheduler.model.decision import Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.policies.registry import find
from laxity_scheduler.service.learned_models import LearnedModels
from laxity_scheduler.store.journal import Journal
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import FallbackRow
from tests.learn.test_policy_in_force import save
from tests.learn.test_training import run_command
from tests.support import journal
from tests.support.builders import cluster, job


def arrivals(count: int = 24) -> list[Job]:
    """Elastic jobs that are more than 8 GPUs can widen at once."""
    return [
        job(f"j{n}", epochs=20 + 7 * (n % 5), workers=(1, 2, 4, 8), submitted_at=40.0 * n)
        for n in range(count)
    ]


def decided_by(policy: str, home: Path, count: int = 24) -> JournalSource:
    """The journal of a day in which this policy decided."""
    home.mkdir(exist_ok=True)
    store = Store.open(f"sqlite:///{home}/laxity.db")
    journal.lived(store, policy=policy, arrivals=arrivals(count), gpus=8)
    return JournalSource(store, LearnedModels(), journal.load)


def widening(choices: list[Choice]) -> float:
    """The share of choices in which a wider job is right."""
    return sum(not choice.right[-1] for choice in choices) / len(choices)


def test_the_last_fifth_of_the_cycles_is_held_out(tmp_path: Path) -> None:
    source = decided_by("optimus", tmp_path)
    first, cut = source.split()
    cycles = [cycle.state.cycle for cycle in source.iter_cycles(first)]
    decided_at = {cycle.state.cycle: cycle.state.now for cycle in source.iter_cycles(first)}
    assert source.decided_at(cut - 1) == decided_at[cut - 1]
    source.store.close()
    assert first == cycles[0]
    assert len([cycle for cycle in cycles if cycle >= cut]) == len(cycles) // 5


def test_choices_of_a_journal_lead_to_the_widths_that_were_decided(tmp_path: Path) -> None:
    lazy = save(tmp_path / "lazy.npz", lazy=True)
    shares = {}
    for policy in ("optimus", f"learned:{lazy}"):
        source = decided_by(policy, tmp_path / policy.partition(":")[0])
        choices = collect_journal(source.iter_cycles(0), seed=1)
        source.store.close()
        assert len(choices) > 20
        assert all(choice.right.any() for choice in choices)
        shares[policy] = widening(choices)
    assert shares[f"learned:{lazy}"] == 0.0
    assert shares["optimus"] > 0.4


def test_a_job_that_waits_for_others_to_shrink_is_wanted_as_wide_as_it_will_be(
    tmp_path: Path,
) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    wide = job("a", workers=(1, 2, 4, 8), running=8, epochs=100)
    state = cluster(gpus=8, jobs=[wide, job("b", workers=(1, 2, 4, 8), epochs=100)])
    plan = find("optimus").policy()(state, journal.TRUTH)
    assert {decision.job for decision in plan.decisions if isinstance(decision, Resize)} == {
        "team/a"
    }
    Journal(store).write_cycle(state, plan, journal.TRUTH, policy="optimus", decided_s=0.0)
    source = JournalSource(store, LearnedModels(), journal.load)
    choices = collect_journal(source.iter_cycles(0), seed=1)
    store.close()
    assert max(len(choice.rows) for choice in choices) == 3  # a's step, b's, and to stop
    assert widening(choices) > 0.5


def test_a_net_that_decided_itself_is_right_and_gains_nothing_on_cycles_held_out(
    tmp_path: Path,
) -> None:
    lazy = save(tmp_path / "lazy.npz", lazy=True)
    source = decided_by(f"learned:{lazy}", tmp_path)
    same = measure_net(source.models.load(f"learned:{lazy}")[1].net, source, seed=1)
    shipped = measure_net(source.models.load("learned")[1].net, source, seed=1)
    source.store.close()
    assert (same.right, same.totals.differing) == (1.0, 0)
    assert same.totals.gain == pytest.approx(0.0)
    assert shipped.totals.gain > 0.1
    assert shipped.right < 1.0


@pytest.mark.slow
def test_a_net_learns_from_a_journal_to_decide_as_what_decided_in_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from laxity_lab.policy_training.journal_choices import learn_from_journal

    source = decided_by("optimus", tmp_path)
    start = source.models.load(f"learned:{save(tmp_path / 'lazy.npz', lazy=True)}")[1].net
    before = measure_net(start, source, seed=1)
    learned = learn_from_journal(source, seed=1, updates=200)
    again = learn_from_journal(source, seed=1, updates=200)
    after = measure_net(learned.net, source, seed=1)
    last = source.split()[1] - 1
    until = format_rfc3339(source.decided_at(last), "seconds")
    source.store.close()
    assert learned.cycles_text == f"cycles 1 to {last} (1970-01-01T00:00:00Z to {until})"
    assert after.right > max(0.8, before.right)
    assert after.totals.gain > before.totals.gain
    assert all(map((lambda a, b: (a == b).all()), learned.net.weights, again.net.weights))


def test_cycles_of_a_policy_that_the_guard_caught_are_not_imitated(tmp_path: Path) -> None:
    lazy = f"learned:{save(tmp_path / 'lazy.npz', lazy=True)}"
    source = decided_by(lazy, tmp_path, count=2)
    last = source.store.last_cycle()
    assert len(list(source.iter_trusted(0, last))) == last
    caught: Any = FallbackRow(digest="ab", policy=lazy, at=1.0, reason="slow")
    source.store.write_rows([caught])
    assert list(source.iter_trusted(0, last)) == []
    source.store.close()


def test_jobs_of_a_journal_are_tables_to_simulate_from(tmp_path: Path) -> None:
    source = decided_by("optimus", tmp_path, count=2)
    tables = read_curves(source.iter_cycles(0))
    source.store.close()
    (table,) = tables.values()
    assert table.gpus[0] == 1
    assert table.iterations_per_s[0] == pytest.approx(1.0 / journal.TRUTH.epoch_s)
    assert table.iterations_per_s == tuple(sorted(table.iterations_per_s))
    assert table.trainings == (20.0, 27.0)  # epochs of both jobs


def test_jobs_of_training_worlds_take_as_long_as_those_of_the_journal() -> None:
    """Jobs of a minute and of an hour on one GPU, three times as many of a minute."""
    quick = ThroughputTable((1, 2), (1.0, 2.0), (60.0, 60.0, 60.0))
    slow = ThroughputTable((1, 2), (1.0, 2.0), (3_600.0,))
    tables = {("quick", 0): quick, ("slow", 0): slow}
    jobs = make_trace(tables, ArrivalMix(400, 8, 0.9), seed=1).jobs
    taken = Counter((each.model, each.duration_s * each.gpus) for each in jobs)
    assert set(taken) == {("quick", 60.0), ("slow", 3_600.0)}
    assert 80 <= taken["slow", 3_600.0] <= 120
    seconds = [each.duration_s for each in jobs]
    assert choose_slot_s(jobs) == 60.0
    assert choose_slot_s([each for each in jobs if each.model == "slow"]) == 600.0
    assert min(seconds) == 30.0


def test_a_journal_whose_predictor_has_another_form_is_refused_in_a_line(tmp_path: Path) -> None:
    decided_by("optimus", tmp_path, count=2).store.close()  # predicted by a curve of the tests
    with (
        pytest.raises(CommandError, match="of the journal cannot be read: a predictor of kind"),
        open_journal(str(tmp_path), "") as journal,
    ):
        read_journal_tables(journal)


def test_a_policy_that_decided_and_is_gone_is_named(tmp_path: Path) -> None:
    lazy = save(tmp_path / "lazy.npz", lazy=True)
    source = decided_by(f"learned:{lazy}", tmp_path, count=2)
    with source.store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE cycles SET policy = 'mine'")
    with pytest.raises(JournalError, match=r"mine decided in the journal: unknown policy 'mine'"):
        next(source.iter_cycles(0))
    source.store.close()


def test_a_journal_that_is_absent_empty_or_too_short_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")
    words = ("train", "policy", "--out", str(tmp_path / "new.npz"))
    absent = run_command(*words, "--journal", str(tmp_path / "nowhere"))
    assert absent[0] == USAGE
    assert "there is no journal at" in absent[2]
    Store.open(f"sqlite:///{tmp_path}/laxity.db").close()
    empty = run_command(*words, "--journal", str(tmp_path))
    assert empty[0] == USAGE
    assert "0 choices among widths in 0 cycles, and 20 are needed" in empty[2]
    assert "--kept-cycles" in empty[2]
    with (
        pytest.raises(CommandError, match="no job of the journal has several widths"),
        open_journal(str(tmp_path), "") as journal,
    ):
        read_journal_tables(journal)
    neither = run_command(*words)
    assert neither[0] == USAGE
    (tmp_path / "laxity.db").write_text("no database")
    damaged = run_command(*words, "--journal", f"sqlite:///{tmp_path}/laxity.db")
    assert damaged[0] == FAILED
    assert "--tables DIR" in neither[2]
