"""How a followed job ends, and what its verdict says, as exceptions and as Markdown."""

from typing import Any, Final

from laxity.api.job_view import ENDED, TERMINAL_STATES, JobView, OfferView
from laxity.api.prediction import comparison_text
from laxity.human_time import count_noun, format_seconds, on_widths
from laxity.instants import calendar_instant, format_rfc3339
from laxity.safe_text import markdown
from laxity.worded_error import WordedError

SILENT: Final = "none was reported: later runs are predicted by its run time"
SILENT_S: Final = 60.0  # of a start, and so many times as long as usual: then it is told
SILENT_TIMES: Final = 3.0
PASSING: Final = ("capacity_", "quota_")  # how the reasons begin that pass when others end


class DeadlineRefused(WordedError, RuntimeError):  # noqa: N818 - what the design and its users call it
    """The deadline was not promised. `reason_code` is for machines, `offers` would have been.

    `is_final`: asking again later gets no better answer, as neither capacity nor quota was lacking.
    """

    def __init__(self, job: JobView) -> None:
        self.job = job
        self.reason_code = job.reason_code
        self.offers = job.offers
        self.is_final = not job.reason_code.startswith(PASSING)
        lines = [f"{job.id}: deadline refused [{job.reason_code}]: {job.reason}"]
        lines += [f"  offer {n}: {offer_text(row)}" for n, row in enumerate(job.offers, start=1)]
        if job.offers:
            lines.append(f"  take one with: laxity accept {job.id} N")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job,)  # Prefect keeps a failed run's exception as a pickle


class GroupRefused(DeadlineRefused):
    """The deadline of a whole group was not promised; `group` is the service's answer."""

    def __init__(self, group: dict[str, Any]) -> None:
        self.group = group
        self.reason_code, self.offers = group["reason_code"], ()
        self.is_final = not self.reason_code.startswith(PASSING)
        lines = [f"{group['id']}: deadline refused [{self.reason_code}]: {group['reason']}"]
        lines += [f"  offer {n}: {row['text']}" for n, row in enumerate(group["offers"], start=1)]
        RuntimeError.__init__(self, "\n".join(lines))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.group,)


class TrainingFailed(WordedError, RuntimeError):  # noqa: N818 - what the design and its users call it
    """The job ended without a result. The next attempt begins with the same call."""

    def __init__(self, job: JobView, problem: str = "") -> None:
        self.job = job
        self.problem = problem
        super().__init__(
            f"{job.id} (attempt {job.attempt}, {job.epochs_done} of {job.epochs} epochs): "
            f"{problem or job.error or job.reason or 'failed without a word'}; "
            f"see: laxity logs {job.id}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job, self.problem)


class TrainingCancelled(WordedError, RuntimeError):  # noqa: N818 - the same
    """Somebody cancelled the job, or the flow run that follows it."""

    def __init__(self, job: JobView) -> None:
        self.job = job
        super().__init__(f"{job.id} was cancelled after {job.epochs_done} of {job.epochs} epochs")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job,)


# The two artifacts of a flow run in Prefect.
VERDICT_KEY: Final = "laxity-verdict"
PROGRESS_KEY: Final = "laxity-progress"
# Where a job stands with its deadline, in one word; a change of it is an event.
ENDANGERED: Final = "endangered"
BROKEN: Final = "broken"
STANDINGS: Final = frozenset({"promised", ENDANGERED, BROKEN, "late"})  # of a job that goes on
SHOWN_FROM_S: Final = 1.0  # so long a start or finishing lasts before a time is told
TENTHS: Final = 10  # of a training's epochs; each is told of in logs


def deadline_status(job: JobView) -> str:
    """none, promised, endangered, broken, refused, forecast or late; at the end also kept, ..."""
    if job.state in {"failed", "cancelled", "refused"}:
        return job.state
    if job.state == "finished":
        if job.kept is None:
            return "finished"
        return "kept" if job.kept else BROKEN if job.verdict == "promised" else "late"
    if job.broken:
        return BROKEN
    late = job.deadline_at is not None and job.p90_at is not None and job.p90_at > job.deadline_at
    if job.verdict == "promised" and (late or job.raw.get("danger")):  # perhaps no end is foreseen
        return ENDANGERED
    return "late" if late and job.verdict == "forecast" else job.verdict


def standing_text(job: JobView) -> str:
    """Where it stands with its deadline, with the figures that say so."""
    status, due = deadline_status(job), job.deadline_at
    if job.state == "finished" and due is None:
        return finished_text(job)
    if due is None or job.state in {"failed", "cancelled", "refused"}:
        return status
    deadline = f"the deadline {instant_text(due)}"
    if job.finished_at is not None:
        side = "before" if job.finished_at <= due else "after"
        apart = format_seconds(abs(due - job.finished_at))
        return f"{status}: {finished_text(job)}{_comma(job)} {apart} {side} {deadline}"
    if job.p90_at is not None and status in {ENDANGERED, "late"}:
        finish = f"P90 finish {instant_text(job.p90_at)}"
        return f"{status}: {finish} is {format_seconds(job.p90_at - due)} after {deadline}"
    if status == BROKEN:
        expected = f"; P90 finish {instant_text(job.p90_at)}" if job.p90_at is not None else ""
        return f"{status}: {deadline} has passed{expected}"
    return with_clock(f"{status}, deadline {instant_text(due)}", job)


def state_words(job: JobView) -> str:
    """What it does and where it stands, or how it ended, in a few words for tables.

    "running, promised", "running, endangered", "kept, 8m39s early", "broken by 12s", "cancelled".
    """
    status, due = deadline_status(job), job.deadline_at
    if job.state == "finished" and job.finished_at is not None and due is not None:
        apart = format_seconds(abs(due - job.finished_at))
        stands = f"{status}, {apart} early" if job.kept else f"{status} by {apart}"
        return f"{stands}: {finished_text(job)}" if job.finished_early else stands
    if job.state == "finished":
        return finished_text(job)
    if job.ended or job.state == "refused":
        return job.state
    doing = f"{job.state}, {status}" if status in STANDINGS else job.state
    doing = f"{doing}, stalled" if job.stalled_since is not None else doing
    return f"{doing}, pinned" if job.pinned else doing


def stalled_text(job: JobView, now: float) -> str:
    """Return "no epoch has ended for 2m05s, usually 0.5s"; "" while epochs end as they should."""
    if job.stalled_since is None:
        return ""
    lasts, usual = format_seconds(now - job.stalled_since), format_seconds(job.usual_epoch_s)
    return f"no epoch has ended for {lasts}, usually {usual}"


def silence_text(job: JobView, now: float) -> str:
    """That nothing is known of its progress, and what follows from that; "" where something is."""
    if job.is_silent:
        return SILENT
    if job.part_reason:
        return ""
    began_at = job.part_since if job.part == "starting" and not job.ended else None
    if began_at is None or now - began_at < max(SILENT_S, SILENT_TIMES * (job.part_usual_s or 0.0)):
        return ""
    return "none was reported yet: a script that reports none is predicted by its run time"


def part_text(job: JobView, now: float) -> str:
    """What it does before its first epoch or after its last: "finishing for 15s, usually 26s".

    Of a start that something keeps, what that is: "starting for 15s: worker 0 has no node: ...".
    """
    if not job.part or job.ended or job.part_since is None:
        return ""
    usual_s, age_s = job.part_usual_s or 0.0, now - job.part_since
    lasts = f"{job.part} for {format_seconds(age_s)}" if age_s >= SHOWN_FROM_S else job.part
    if job.part_reason:
        return f"{lasts}: {job.part_reason}"
    return f"{lasts}, usually {format_seconds(usual_s)}" if usual_s >= SHOWN_FROM_S else lasts


def with_clock(deadline: str, job: JobView) -> str:
    """A deadline as text, with the time by the clock that it was declared as, and its zone."""
    return f"{deadline}: {job.deadline_clock}" if job.deadline_clock else deadline


def ending_text(job: JobView) -> str:
    """How an ended job ended, and what it was promised; empty while it has not ended."""
    if job.state not in ENDED:
        return ""
    promise = "; it was promised" if job.verdict == "promised" else ""
    return f"{_end_text(job)}{promise}"


def _end_text(job: JobView) -> str:
    if job.state != "finished":
        return f"{job.state} after {job.epochs_done} of {job.epochs} epochs"
    if job.kept is None or job.finished_at is None or job.deadline_at is None:
        return finished_text(job)
    apart, words = format_seconds(abs(job.deadline_at - job.finished_at)), finished_text(job)
    if job.kept:
        return f"{words}{_comma(job)} in time, {apart} before its deadline"
    return f"{words}{_comma(job)} late by {apart}"


def finished_text(job: JobView) -> str:
    """Return "finished", or "finished early, 6 of at most 40 epochs" where its code ended it."""
    if not job.finished_early:
        return "finished"
    return f"finished early, {job.epochs_done} of at most {count_noun(job.epochs, 'epoch')}"


def _comma(job: JobView) -> str:
    return "," if job.finished_early else ""


def count_tenths(job: JobView) -> int:
    """How many tenths of its epochs are done: a log hears of each."""
    return TENTHS * job.epochs_done // max(1, job.epochs)


def result_of(job: JobView) -> Any:
    """Rank 0's result of a settled job, or the exception that says why there is none."""
    if job.state == "finished":
        return job.result
    if job.state == "refused":
        raise DeadlineRefused(job)
    if job.state == "cancelled":
        raise TrainingCancelled(job)
    raise TrainingFailed(job)


def verdict_markdown(job: JobView) -> str:
    """The verdict as Markdown: what was asked, what was said and why, what would do instead."""
    table = [f"| {name} | {markdown(value)} |" for name, value in fact_rows(job) if value]
    table += [f"| MLflow page | <{job.run_url}> |"] if job.run_url else []
    lines = [
        f"# {job.id}: {deadline_status(job)}",
        "",
        _cause_text(job),
        "",
        "| | |",
        "|---|---|",
        *table,
    ]
    if job.offers and job.state == "refused":
        offers = [f"{n}. {offer_text(row)}" for n, row in enumerate(job.offers, start=1)]
        lines += ["", "Instead this would do:", "", *offers, ""]
        lines.append(f"Take one with `laxity accept {job.id} N`.")
    return "\n".join(lines)


def fact_rows(job: JobView) -> list[tuple[str, str]]:
    """Names and values of what is known of a job; "" for what is not."""
    return [
        ("deadline", with_clock(instant_text(job.deadline_at), job)),
        *_finish_rows(job),
        ("history", "" if job.ended else job.prediction_note),
        ("progress", SILENT if job.is_silent else ""),
        ("class", job.service_class),
        ("model", job.model),
        ("widths", ", ".join(map(str, job.widths))),
        ("preemptions", str(job.preemptions or "")),
        ("MLflow run", job.run_id),
        ("not tracked", job.untracked),
        ("error", job.error),
    ]


def pending_text(job: JobView) -> str:
    """Behind a first guess at its finish, while the finish with all waiting is worked out."""
    return ", being worked out" if job.finish_pending and job.p50_at is not None else ""


def moved_from_at(job: JobView) -> float | None:
    """The P90 finish that its promise was given with; None where it is the one of now."""
    given_at, p90_at = job.given_p90_at, job.p90_at
    same = given_at is None or (p90_at is not None and abs(given_at - p90_at) < 1.0)
    return None if same else given_at


def _finish_rows(job: JobView) -> list[tuple[str, str]]:
    """When it is expected to end; after the end what was first expected, beside the truth."""
    if job.state in ENDED:
        first = [
            ("first P50 finish", instant_text(job.first_p50_at)),
            ("first P90 finish", instant_text(job.first_p90_at)),
        ]
        return [
            *([] if job.state == "cancelled" else first),
            ("finished" if job.state == "finished" else "ended", instant_text(job.finished_at)),
            ("prediction", comparison_text(job)),
        ]
    return [
        ("expected start", "" if job.workers else instant_text(job.expected_start_at)),
        ("P50 finish", instant_text(job.p50_at) + pending_text(job)),
        ("P90 finish", instant_text(job.p90_at) + pending_text(job)),
        ("promised P90", instant_text(moved_from_at(job))),
    ]


def artifact_of(key: str, job: JobView) -> dict[str, Any]:
    """One artifact of the job's flow run: key, type, data and description, as Prefect takes them."""
    if key == PROGRESS_KEY:
        data: Any = progress_percent(job)
        kind, text = "progress", progress_text(job)
    else:
        kind, data = "markdown", verdict_markdown(job)
        reason = "" if job.ended else markdown(job.reason)
        text = ", ".join(filter(None, (standing_text(job), reason)))
    return {"key": key, "type": kind, "data": data, "description": text}


def offer_text(offer: OfferView) -> str:
    """One counter-offer in a line; its one difference to what was asked comes first."""
    widths = on_widths(offer.widths)
    texts = {
        "deadline": f"deadline {instant_text(offer.deadline_at)} on {widths}",
        "widths": f"{widths}, deadline as asked",
        "borrow": f"{count_noun(offer.gpus_borrowed, 'more GPU')} in the cluster, deadline as asked",
        "lent": f"class soft: with {count_noun(offer.gpus_borrowed, 'borrowed GPU')} it would likely end at "
        f"{instant_text(offer.p50_at)}, in time; this is a forecast, no promise",
        "probe": "a probe of two epochs as best effort, then a verdict",
        "soft": "class soft: it runs, and its lateness is told early",
    }.get(offer.kind, offer.kind)
    return f"{texts} (P90 finish {instant_text(offer.p90_at)})" if offer.p90_at else texts


def progress_percent(job: JobView) -> float:
    if job.state == "finished":
        return 100.0
    return min(100.0, 100.0 * job.epochs_done / job.epochs) if job.epochs else 0.0


def progress_text(job: JobView) -> str:
    if job.finished_early:
        return finished_text(job)
    has_ended = job.laxity_s is None or job.state in TERMINAL_STATES
    left = "" if has_ended else f", laxity {format_seconds(job.laxity_s)}"
    width = f" on {count_noun(job.workers, 'worker')}" if job.workers else ""
    return f"{job.epochs_done} of {job.epochs} epochs, {job.state}{width}{left}"


def instant_text(at: float | None) -> str:
    """RFC 3339 to the second; empty if there is none."""
    if at is None:
        return ""
    return "never" if calendar_instant(at) is None else format_rfc3339(round(at))


def _cause_text(job: JobView) -> str:
    """Why it stands so: after the end how it ended, not why it was admitted once."""
    if job.state == "finished":
        return standing_text(job)
    if job.state in ENDED:
        return ending_text(job)
    code = f"`{job.reason_code}` " if job.reason_code else ""
    return f"{code}{markdown(job.reason)}".strip() or "No verdict yet."
