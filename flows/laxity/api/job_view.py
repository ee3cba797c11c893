"""What the service says of a job, as frozen values with names and types.

The HTTP API answers in JSON; scripts, flows and tables want attributes. A field that an older or
newer service leaves out keeps its default, so a client one version away still reads the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from laxity import names
from laxity.safe_text import printable

Json = dict[str, Any]

ENDED: Final = frozenset({"finished", "failed", "cancelled"})
TERMINAL_STATES: Final = ENDED | {"refused"}


@dataclass(frozen=True, slots=True)
class OfferView:
    """What would be promised instead. Instants are POSIX seconds."""

    kind: str = ""
    deadline_at: float | None = None
    widths: tuple[int, ...] = ()
    p90_at: float | None = None
    checked_at: float | None = None
    gpus_borrowed: int = 0
    p50_at: float | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as the service sees it. Instants are POSIX seconds, None where there is none.

    `given_p90_at` is the P90 finish with which the promise in force was given; `promised_p90_at` moves.
    `deadline_clock` is a deadline by the clock as it was declared, "06:00 Europe/Berlin";
    `width_history` holds (at, workers) pairs, 0 workers for a stop; `borrowed_gpus` are on nodes that
    inference has lent, now, `borrowed_gpu_h` in all; a stop of one that holds no state loses all epochs;
    `saved_epoch`: of the checkpoint, where newer ones cannot be written (`save_error`);
    `code_changed`: files that were others at its first start;
    `stalled_since`: no epoch has ended since then, though one usually takes `usual_epoch_s`;
    `part` is "starting" before the first epoch and "finishing" after the last one, with what it usually takes;
    `part_reason`: what keeps the start, in the words of the scheduler or the kubelet;
    `prediction_note`: how the job differs from the runs that its prediction rests on;
    `finished_early`: its code ended it before its last epoch; `first_...` are what the first verdict predicted;
    `group`, `step`: jobs with one deadline together, whose part for this one is `deadline_at`, and why;
    `attached`: in the answer to a submission, that its key is of this earlier job; `raw` is the whole
    answer.
    """

    id: str
    uid: str = ""
    service_class: str = "best_effort"
    model: str = ""
    state: str = "queued"
    verdict: str = "none"
    reason_code: str = ""
    reason: str = ""
    deadline_at: float | None = None
    deadline_clock: str = ""
    submitted_at: float | None = None
    promised_p90_at: float | None = None
    given_p90_at: float | None = None
    p50_at: float | None = None
    p90_at: float | None = None
    finish_pending: bool = False
    part: str = ""
    part_since: float | None = None
    part_usual_s: float | None = None
    part_reason: str = ""
    first_p50_at: float | None = None
    first_p90_at: float | None = None
    first_run_s: float | None = None
    laxity_s: float | None = None
    workers: int = 0
    formed: int = 0
    widths: tuple[int, ...] = ()
    width_history: tuple[tuple[float, int], ...] = ()
    epochs: int = 0
    epochs_done: int = 0
    preemptions: int = 0
    holds_state: bool = True
    finished_early: bool = False
    saved_epoch: int | None = None
    save_error: str = ""
    code_changed: str = ""
    stalled_since: float | None = None
    usual_epoch_s: float | None = None
    prediction_note: str = ""
    borrowed_gpus: int = 0
    borrowed_gpu_h: float = 0.0
    pinned: bool = False
    attempt: int = 1
    attached: bool = False
    offers: tuple[OfferView, ...] = ()
    held_by: tuple[str, ...] = ()
    expected_start_at: float | None = None
    finished_at: float | None = None
    result: Any = None
    run_id: str = ""
    run_url: str = ""
    untracked: str = ""
    revision: Any = None
    group: str = ""
    step: str = ""
    share_reason: str = ""
    error: str = ""
    refused_deadline: Mapping[str, Any] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to this attempt; a refused job that is there may be accepted."""
        return self.state in ENDED or (self.state == "refused" and self.finished_at is not None)

    @property
    def is_silent(self) -> bool:
        """Whether it was a script that has finished, and posted no progress."""
        return isinstance(self.result, Mapping) and self.result.get(names.PROGRESS, 0) is None

    def has_lapsed(self, now: float) -> bool:
        """Whether it was refused, and its deadline and those of its offers have passed."""
        deadlines = [self.deadline_at, *(offer.deadline_at for offer in self.offers)]
        ends = [deadline_at for deadline_at in deadlines if deadline_at is not None]
        return self.state == "refused" and bool(ends) and max(ends) <= now

    @property
    def kept(self) -> bool | None:
        """Whether the deadline was kept; None without a deadline, or if the job has not finished.

        A run that was cancelled, or whose own code raised, neither kept nor broke its deadline.
        """
        if self.state != "finished" or self.deadline_at is None or self.finished_at is None:
            return None
        return self.finished_at <= self.deadline_at

    @property
    def broken(self) -> bool:
        """Whether a promise was given and the deadline was missed, also while the job still runs."""
        if self.verdict != "promised" or self.state == "cancelled":
            return False
        if self.kept is not None:
            return not self.kept
        in_time = self.p90_at is not None and self.p90_at <= (self.deadline_at or 0.0)
        return bool(self.raw.get("broken")) and not in_time  # in time again: a later deadline


_NAMES: Final = frozenset(row.name for row in fields(JobView)) - {"raw", "service_class"}
_OFFER_NAMES: Final = frozenset(row.name for row in fields(OfferView))


def job_view(answer: Mapping[str, Any]) -> JobView:
    """A JobView of the service's JSON; null and missing fields keep their defaults.

    Its texts are for people, so they hold no terminal escapes; `raw` has them as they came.
    """
    fields = {
        name: printable_value(answer[name]) for name in _NAMES if answer.get(name) is not None
    }
    fields["service_class"] = answer.get("class") or "best_effort"
    fields["widths"] = tuple(fields.get("widths", ()))
    fields["width_history"] = tuple(
        (since, workers) for since, workers in fields.get("width_history", ())
    )
    fields["held_by"] = tuple(fields.get("held_by", ()))
    fields["offers"] = tuple(offer_view(offer) for offer in fields.get("offers", ()))
    return JobView(**fields, raw=dict(answer))


def printable_value(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


def offer_view(answer: Mapping[str, Any]) -> OfferView:
    fields = {name: answer[name] for name in _OFFER_NAMES if answer.get(name) is not None}
    fields["widths"] = tuple(fields.get("widths", ()))
    return OfferView(**fields)
