"""The trials of an Optuna study, asked and told: the only importer of Optuna in the client.

The study's storage is the truth. It keeps the record of the sweep, which job trains which trial, and
what each came to. A study in memory is copied into a journal file of the home folder: workers, and a
client that comes back, read it there.
"""

import pickle
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from laxity.job.qos import QoSError
from laxity.sweeps.trials import (
    NOT_STARTED,
    Direction,
    Outcome,
    SweepRecord,
    SweepTrial,
    record_folder,
)
from laxity.worker.trial import TrialTerms, pack_study

RECORD: Final = "laxity.sweep"  # attributes of the study ...
JOB: Final = "laxity.job"  # ... and of its trials
NOTE: Final = "laxity.note"
SECRET: Final = re.compile(rb"://[^/@\s:]*:[^/@\s]+@")
OUTCOMES: Final[Mapping[TrialState, Outcome]] = {
    TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed",
}  # fmt: skip


class StudyTrials:
    """`epochs` is how many a trial has at full length, `metric` the figure that it reports."""

    def __init__(
        self, study: "optuna.Study", *, title: str, epochs: int, metric: str, direction: str | None
    ) -> None:
        self.direction = _check_direction(study, direction)
        self.given = study
        self.is_kept = isinstance(study._storage, InMemoryStorage)  # noqa: SLF001 - nowhere else
        self.study = _keep_study(study, title) if self.is_kept else study
        self.name, self.is_exhausted = self.study.study_name, False
        self._epochs, self._metric, self._first = epochs, metric, 0
        _check_portable(self.study)

    def read_record(self) -> SweepRecord | None:
        return SweepRecord.from_json(self.study.user_attrs.get(RECORD, ""))

    def write_record(self, record: SweepRecord) -> None:
        self._first = record.first
        self.study.set_user_attr(RECORD, record.to_json())

    def count_all(self) -> int:
        """Trials that the study has, of this sweep and others."""
        return len(self.study.get_trials(deepcopy=False))

    def ask(self) -> SweepTrial | None:
        """The next trial, with the parameters that all trials so far have had in common.

        What an objective suggests is known once a trial has suggested it: the first one goes alone.
        """
        space = self._known_space()
        if space is None and any(trial.outcome == "running" for trial in self.begun()):
            return None
        asked = self.study.ask(fixed_distributions=space or {})
        return SweepTrial(asked.number, dict(asked.params))

    def terms(self, trial: SweepTrial, until: float) -> TrialTerms:
        return TrialTerms(until, self._metric, pack_study(self.study), trial.number)

    def note_job(self, trial: SweepTrial, job: str) -> None:
        self._set_attr(trial.number, JOB, job)

    def tell(self, trial: SweepTrial) -> None:
        """The value at full length, or that of the last epoch of one that ended before."""
        self._set_attr(trial.number, NOTE, trial.note)
        states = {"pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        value = trial.value if trial.outcome == "complete" else None
        try:
            self.study.tell(trial.number, value, states.get(trial.outcome))
        except RuntimeError:  # a sampler that has tried all it has ends `study.optimize`
            if not self.study.get_trials(deepcopy=False)[trial.number].state.is_finished():
                raise
            self.is_exhausted = True

    def begun(self) -> Sequence[SweepTrial]:
        trials = self.study.get_trials(deepcopy=False)[self._first :]
        rows = [self._row(trial) for trial in trials if JOB in trial.user_attrs]
        return [row for row in rows if not row.note.startswith(NOT_STARTED)]

    def close(self) -> None:
        """Add the trials to the study in memory, which its owner looks at."""
        if self.is_kept:
            known = len(self.given.get_trials(deepcopy=False))
            self.given.add_trials(self.study.get_trials()[known:])

    def _row(self, trial: FrozenTrial) -> SweepTrial:
        reached = max(trial.intermediate_values, default=0)
        is_whole = trial.state is TrialState.COMPLETE
        took = trial.duration
        return SweepTrial(
            trial.number,
            trial.params,
            OUTCOMES.get(trial.state, "running"),
            trial.value,
            trial.user_attrs.get(NOTE, ""),
            trial.user_attrs[JOB],
            1.0 if is_whole else min(1.0, reached / self._epochs),
            None if took is None else took.total_seconds(),
        )

    def _known_space(self) -> dict[str, BaseDistribution] | None:
        """Parameters that every trial of the study has suggested; None while none has suggested any."""
        spaces = [
            trial.distributions
            for trial in self.study.get_trials(deepcopy=False)
            if trial.distributions
        ]
        if not spaces:
            return None
        common = dict(spaces[0])
        for space in spaces[1:]:
            common = {name: dist for name, dist in common.items() if space.get(name) == dist}
        return common

    def _set_attr(self, number: int, name: str, value: Any) -> None:
        trial = self.study.get_trials(deepcopy=False)[number]
        self.study._storage.set_trial_user_attr(trial._trial_id, name, value)  # noqa: SLF001 - public in Optuna's Trial only


def _check_direction(study: "optuna.Study", asked: str | None) -> Direction:
    if len(study.directions) > 1:
        raise QoSError("study", f"it has {len(study.directions)} objectives; a sweep has one")
    own: Direction = "maximize" if study.direction is StudyDirection.MAXIMIZE else "minimize"
    if asked is not None and asked != own:
        raise QoSError(
            "direction", f"study {study.study_name!r} is to {own}, and {asked!r} is asked for"
        )
    return own


def _keep_study(study: "optuna.Study", title: str) -> "optuna.Study":
    """A study like this one in a file: that of a sweep which goes on, else a new one."""
    path = record_folder() / f"{title}.journal"
    storage = JournalStorage(JournalFileBackend(str(path)))
    names = [name for name in optuna.get_all_study_names(storage) if name.startswith(f"{title}-")]
    latest = f"{title}-{len(names)}"
    if latest in names:
        kept = optuna.load_study(
            study_name=latest, storage=storage, sampler=study.sampler, pruner=study.pruner
        )
        record = SweepRecord.from_json(kept.user_attrs.get(RECORD, ""))
        if record is None or (record.goes_on(time.time()) and kept.direction is study.direction):
            return kept
    made = optuna.create_study(
        study_name=f"{title}-{len(names) + 1}",
        storage=storage,
        sampler=study.sampler,
        pruner=study.pruner,
        direction=study.direction,
    )
    made.add_trials(study.get_trials())
    return made


def _check_portable(study: "optuna.Study") -> None:
    """QoSError where workers could not read the study, or others could read its password."""
    try:
        content = pickle.dumps(study)
    except Exception as error:
        raise QoSError(
            "study",
            f"its storage, sampler or pruner cannot be handed to workers ({error}); use those of Optuna",
        ) from error
    if SECRET.search(content):
        raise QoSError(
            "study",
            "the URL of its storage holds a password, which would stand readable in each Job; leave "
            'it out there and pass it on: pass_env=("PGPASSWORD",)',
        )
    for part in (study.sampler, study.pruner):
        if type(part).__module__ == "__main__":
            raise QoSError(
                "study",
                f"{type(part).__name__} stands in the script itself, where no worker can import it; "
                "move it into a module",
            )
