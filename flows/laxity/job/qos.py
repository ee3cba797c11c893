"""The quality of service a user asks for: a deadline, a class, widths. No resources, no machinery.

A QoS is a checked value: one that exists is sound, whether it came from Python, from a Job's
annotations or from a form. Everything that can be said wrongly is told by field and in words.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final, Literal, cast, get_args

from laxity.clock_time import ClockTime
from laxity.durations import (
    LONGEST,
    Deadline,
    aware_instant,
    deadline_instant,
    format_duration,
    parse_deadline,
    parse_duration,
    positive_duration,
)
from laxity.instants import format_instant
from laxity.job.widths import (
    MOST_WORKERS,
    check_whole_within,
    check_widths,
    format_widths,
    parse_widths,
    widths_of,
)
from laxity.worded_error import WordedError

__all__ = [
    "MOST_EPOCHS",
    "MOST_WORKERS",
    "OnMiss",
    "QoS",
    "QoSError",
    "ServiceClass",
    "format_duration",
    "format_widths",
    "parse_duration",
    "parse_widths",
]

ServiceClass = Literal["hard", "soft", "best_effort"]
OnMiss = Literal["continue", "stop"]

MOST_GPUS_PER_WORKER: Final = 1024
MOST_EPOCHS: Final = 1_000_000


class QoSError(WordedError, ValueError):
    """What was declared cannot be meant. `problems` holds all of them as (field, problem) pairs.

    `field` and `problem` are the first: a form marks the field, a log shows the whole message.
    """

    def __init__(self, field: str, problem: str, *more: tuple[str, str]) -> None:
        self.problems: tuple[tuple[str, str], ...] = ((field, problem), *more)
        super().__init__("; ".join(f"{where}: {what}" for where, what in self.problems))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.problems[0], *self.problems[1:])

    @property
    def field(self) -> str:
        return self.problems[0][0]

    @property
    def problem(self) -> str:
        return self.problems[0][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class QoS:
    """What a job asks for. Without a class it is hard if there is a deadline, else best_effort.

    `deadline` is an instant, a duration from submission, or a time by the clock: the next one after
    it. `widths` are the allowed worker counts, None lets laxity choose; `epoch_estimate_s` is one epoch on one worker. After its deadline a job
    runs on, unless `on_miss` is "stop". `wall_limit_s` is the longest that one start may run: a longer
    training is a chain of such links, with one deadline for all.
    """

    deadline: Deadline | None = None
    service_class: ServiceClass = field(default=cast("ServiceClass", None))  # None: by the rule
    widths: tuple[int, ...] | None = None
    gpus_per_worker: int = 1
    preemptible: bool = True
    epoch_estimate_s: float | None = None
    on_miss: OnMiss = "continue"
    wall_limit_s: float | None = None

    def __post_init__(self) -> None:
        settled = {
            "deadline": collect_error("deadline", check_deadline, self.deadline),
            "service_class": collect_error("service_class", check_class, self.service_class),
            "widths": collect_error("workers", check_widths, self.widths),
            "gpus_per_worker": collect_error("gpus_per_worker", check_gpus, self.gpus_per_worker),
            "preemptible": collect_error("preemptible", check_flag, self.preemptible),
            "epoch_estimate_s": collect_error(
                "epoch_estimate", check_seconds, self.epoch_estimate_s
            ),
            "on_miss": collect_error("on_miss", check_on_miss, self.on_miss),
            "wall_limit_s": collect_error("wall_limit", check_seconds, self.wall_limit_s),
        }
        raise_all(value for value in settled.values() if isinstance(value, QoSError))
        if settled["service_class"] is None:
            settled["service_class"] = "best_effort" if self.deadline is None else "hard"
        for name, value in settled.items():
            object.__setattr__(self, name, value)
        _check_together(self.service_class, self.deadline)

    @classmethod
    def of(
        cls,
        *,
        deadline: str | datetime | timedelta | time | None = None,
        service_class: str | None = None,
        workers: int | str | Iterable[int] | None = None,
        gpus_per_worker: int = 1,
        preemptible: bool = True,
        epoch_estimate: str | timedelta | None = None,
        on_miss: str = "continue",
        wall_limit: str | timedelta | None = None,
    ) -> "QoS":
        """What users write: "20m", "06:00" or an ISO instant, workers=3, (1, 2, 4), "1..4" or "auto"."""
        read = {
            "deadline": collect_error("deadline", _deadline_of, deadline),
            "widths": collect_error("workers", widths_of, workers),
            "epoch_estimate_s": collect_error("epoch_estimate", _seconds_of, epoch_estimate),
            "wall_limit_s": collect_error("wall_limit", _seconds_of, wall_limit),
        }
        unread = [value for value in read.values() if isinstance(value, QoSError)]
        sound = {name: value for name, value in read.items() if not isinstance(value, QoSError)}
        try:
            qos = cls(
                service_class=cast("ServiceClass", service_class),
                gpus_per_worker=gpus_per_worker,
                preemptible=preemptible,
                on_miss=cast("OnMiss", on_miss),
                **sound,
            )
        except QoSError as error:
            if "deadline" not in sound and error.field == "deadline":
                raise_all(unread)  # "needs a deadline" is no news about one that could not be read
            raise_all([*unread, error])
        raise_all(unread)
        return qos

    def deadline_at(self, submitted_at: float) -> float:
        """The deadline in POSIX seconds, infinity if there is none."""
        return math.inf if self.deadline is None else deadline_instant(self.deadline, submitted_at)

    @property
    def deadline_text(self) -> str:
        """The text of the annotation; empty without a deadline.

        A time by the clock has its zone here, that of this machine if it left it open.
        """
        if self.deadline is None:
            return ""
        if isinstance(self.deadline, ClockTime):
            return str(self.deadline.with_zone())
        if isinstance(self.deadline, datetime):
            return format_instant(self.deadline)
        return format_duration(self.deadline)


def raise_all(errors: Iterable[QoSError]) -> None:
    """One error with the problems of all; nothing if there are none."""
    problems = [problem for error in errors for problem in error.problems]
    if problems:
        raise QoSError(*problems[0], *problems[1:])


def collect_error(where: str, check: Any, value: Any) -> Any:
    """What `check` makes of the value, or the QoSError of that field as a value."""
    try:
        return check(value)
    except ValueError as error:
        return QoSError(where, str(error))


def _deadline_of(value: object) -> object:
    if isinstance(value, str):
        return parse_deadline(value)
    return ClockTime.of(value) if isinstance(value, time) else value


def check_deadline(value: object) -> Deadline | None:
    if value is None or isinstance(value, ClockTime):
        return value
    if isinstance(value, timedelta):
        return positive_duration(value)
    if isinstance(value, datetime):
        instant = aware_instant(value)
        if instant - datetime.now(UTC) > LONGEST:
            raise ValueError(f"{format_instant(instant)} is more than ten years away")
        return instant
    raise ValueError(
        f"{value!r} has no unit; write a text such as '20m', a timedelta or a datetime with a zone"
    )


def check_class(value: object) -> ServiceClass | None:
    return None if value is None else cast("ServiceClass", _check_choice(value, ServiceClass))


def check_on_miss(value: object) -> OnMiss:
    return cast("OnMiss", _check_choice(value, OnMiss))


def _check_choice(value: object, literal: Any) -> object:
    if value not in get_args(literal):
        raise ValueError(f"{str(value)[:40]!r} is none of {', '.join(get_args(literal))}")
    return value


def check_gpus(value: object) -> int:
    return check_whole_within(value, least=1, most=MOST_GPUS_PER_WORKER, what="GPUs per worker")


def check_whole(where: str, value: object, *, least: int, most: int, what: str) -> int:
    """The value if it is a whole number in the range; QoSError for that field if not."""
    try:
        return check_whole_within(value, least=least, most=most, what=what)
    except ValueError as error:
        raise QoSError(where, str(error)) from None


def check_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{value!r} is neither True nor False")


def _seconds_of(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        return parse_duration(value).total_seconds()
    if isinstance(value, timedelta):
        return positive_duration(value).total_seconds()
    raise ValueError(f"{value!r} has no unit; write a text such as '90s' or a timedelta")


def check_seconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number of seconds")
    if value > LONGEST.total_seconds():
        raise ValueError(f"{value:g}s is longer than ten years")
    return positive_duration(timedelta(seconds=value)).total_seconds()  # to the microsecond


def _check_together(service_class: ServiceClass, deadline: object) -> None:
    if service_class == "best_effort" and deadline is not None:
        raise QoSError(
            "service_class",
            "best_effort has no deadline; leave the deadline out, or say soft to be told when it "
            "will be late",
        )
    if service_class != "best_effort" and deadline is None:
        raise QoSError("deadline", f"a {service_class} job needs one, for example 2h")
