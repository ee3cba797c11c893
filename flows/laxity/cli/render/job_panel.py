"""One job, told to a person: its verdict with the reason, what is expected, what it may take."""

import json
import math
import time
from collections.abc import Mapping
from typing import Any, Final

import typer
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from laxity.api.job_view import ENDED, JobView, OfferView, offer_view
from laxity.api.prediction import comparison_text
from laxity.api.status_text import (
    deadline_status,
    ending_text,
    moved_from_at,
    part_text,
    pending_text,
    silence_text,
    stalled_text,
    state_words,
    with_clock,
)
from laxity.cli.render.job_table import (
    VERDICT_STYLES,
    console,
    epochs_text,
    fact_table,
    format_expected_end,
    reason_text,
    short_id,
    width_text,
)
from laxity.human_time import as_of, count_noun, format_seconds, instant_text, on_widths
from laxity.safe_text import printable

SEEN_S: Final = 0.5
NO_VERDICT: Final = "the service's policy gives no verdicts; laxity policies lists those that do"
LEAST_GPU_H: Final = 0.01  # that is told as a number


def print_job(job: JobView, *, as_json: bool) -> None:
    if as_json:
        print_json(job.raw)
    else:
        console().print(job_panel(job, now=time.time()))


def print_json(answer: Any) -> None:
    """One line of JSON with stable names, as the service said it."""
    typer.echo(json.dumps(answer, sort_keys=True))


def job_panel(job: JobView, *, now: float) -> Panel:
    """The whole story of a job in a box."""
    parts: list[RenderableType] = [headline_text(job, now)]
    parts.append(fact_table(_job_facts(job, now)))
    parts += offer_lines(job, now)
    return Panel(Group(*parts), title=job.id, title_align="left", expand=False)


def offer_lines(job: JobView, now: float) -> list[Text]:
    """What would do instead, of a job that is refused."""
    if not job.offers or job.state != "refused" or job.ended:
        return []
    return [offers_text(job.offers, now=now, job=short_id(job.id))]


def headline_text(job: JobView, now: float) -> Text:
    """Where it stands with its deadline, and why; after the end how the job ended."""
    if job.state not in ENDED:
        return verdict_line(deadline_status(job), job.reason_code, reason_text(job, now))
    is_bad = job.state == "failed" or job.kept is False
    style = "bold red" if is_bad else "bold green" if job.kept else "bold"
    return Text(ending_text(job), style=style)


def verdict_line(verdict: str, code: str, reason: str) -> Text:
    """The verdict and why; a refusal with its code, by which it is known in the docs."""
    line = Text(verdict, style=VERDICT_STYLES.get(verdict, "dim"))
    code = code if verdict == "refused" else ""
    if code:
        line.append(f"  {code}", style="bold not dim")
    if reason:
        line.append(f": {reason}" if code else f"  {reason}", style="default")
    return line


def offers_text(offers: tuple[OfferView, ...], *, now: float, job: str) -> Text:
    """What would do instead, numbered as `laxity accept` counts; no job: nothing was submitted.

    An offer whose deadline has passed is none any more.
    """
    open_offers = [
        (number, offer)
        for number, offer in enumerate(offers, start=1)
        if offer.kind in {"probe", "soft"} or (offer.deadline_at or math.inf) > now
    ]
    if not open_offers:
        again = f"laxity amend {job} --deadline ..." if job else "laxity whatif ..."
        return Text(f"Its offers have expired; ask again: {again}", style="dim")
    text = Text("Instead this would do:\n")
    for number, offer in open_offers:
        text.append(f"  {number}. ", style="bold")
        text.append(f"{offer_words(offer, now)}\n")
    take = f"Take one with: laxity accept {job} [N]" if job else "Nothing was submitted"
    text.append(take, style="dim")
    return text


def offer_words(offer: OfferView, now: float) -> str:
    """An offer in a sentence; its one difference to what was asked comes first."""
    widths = on_widths(offer.widths)
    expected = f"P90 finish {instant_text(offer.p90_at, now)}" if offer.p90_at else ""
    texts = {
        "deadline": f"a deadline of {instant_text(offer.deadline_at, now)} on {widths}",
        "widths": f"{widths} and the deadline as asked",
        "borrow": f"{count_noun(offer.gpus_borrowed, 'more GPU')} in the cluster and the deadline as asked",
        "lent": f"class soft: with {count_noun(offer.gpus_borrowed, 'borrowed GPU')} it would likely end "
        f"{instant_text(offer.p50_at, now)}, in time; this is a forecast, no promise",
        "probe": "a probe of two epochs as best effort, then a verdict",
        "soft": "class soft: it runs, and its lateness is told early",
    }.get(offer.kind, offer.kind)
    return f"{texts}; {expected}" if expected else texts


def whatif_lines(answer: Mapping[str, Any], *, now: float) -> Group:
    """A verdict without a job: what would be said, and what it would do to others."""
    verdict = answer.get("verdict") or "none"
    kind = verdict if isinstance(verdict, str) else str(verdict.get("kind", "none"))
    reason = str(answer.get("reason") or (NO_VERDICT if kind == "none" else ""))
    parts: list[RenderableType] = [
        verdict_line(kind, str(answer.get("reason_code", "")), as_of(now, reason))
    ]
    facts = [("P50 finish", answer.get("p50_at")), ("P90 finish", answer.get("p90_at"))]
    parts.append(fact_table([(name, instant_text(when, now)) for name, when in facts if when]))
    if note := str(answer.get("prediction_note") or ""):
        parts.append(Text(printable(note)))
    offers = tuple(offer_view(offer) for offer in answer.get("offers") or ())
    if offers:
        parts.append(offers_text(offers, now=now, job=""))
    moved = [effect for effect in answer.get("effects") or () if _is_visible(effect)]
    if moved:
        parts.append(Text("It would move others:"))
    parts.extend(_effect_text(effect, now) for effect in moved)
    return Group(*parts)


def _is_visible(effect: Mapping[str, Any]) -> bool:
    """Whether a person would see the difference: by more than half a second."""
    before, after = effect.get("p90_before"), effect.get("p90_after")
    return before is None or after is None or abs(after - before) >= SEEN_S


def _effect_text(effect: Mapping[str, Any], now: float) -> Text:
    before, after = effect.get("p90_before"), effect.get("p90_after")
    by = "" if before is None or after is None else f" ({_difference_text(after - before)})"
    job = short_id(str(effect.get("job")))
    return Text(f"  {job}: P90 {instant_text(before, now)} -> {instant_text(after, now)}{by}")


def _difference_text(seconds: float) -> str:
    return f"{format_seconds(abs(seconds))} {'later' if seconds > 0 else 'earlier'}"


def describe_lost_state(job: JobView) -> str:
    """Which epochs a stop loses, and why; "" where it loses none, and of a job that has ended."""
    if job.ended:
        return ""
    if job.save_error:
        since = f"since epoch {job.saved_epoch}" if job.saved_epoch else "yet"
        return f"not saved {since}: {job.save_error}"
    if job.holds_state:
        return ""
    return "none: nothing was given to training.restore() or --resumes, so a stop loses all epochs"


def describe_refused_deadline(job: JobView, now: float) -> str:
    """Another deadline that was asked for while the promise stands, and why it was refused."""
    refused = job.refused_deadline
    if not isinstance(refused, Mapping) or job.ended:
        return ""
    asked_at, reason = refused.get("deadline_at"), printable(str(refused.get("reason") or ""))
    deadline = instant_text(asked_at, now) if isinstance(asked_at, int | float) else "another one"
    return f"{deadline}, asked again when there is room: {as_of(now, reason)}"


def _job_facts(job: JobView, now: float) -> list[tuple[str, str]]:
    """What is known, line by line; what is not known takes no line."""
    history = ", ".join(
        f"{workers} at {instant_text(since, now)}" for since, workers in job.width_history
    )
    lines = [
        ("state", _state_text(job, now)),
        ("class", job.service_class),
        ("model", job.model),
        ("submitted", instant_text(job.submitted_at, now)),
        ("deadline", with_clock(instant_text(job.deadline_at, now), job)),
        ("refused deadline", describe_refused_deadline(job, now)),
        ("promised P90", "" if job.ended else instant_text(moved_from_at(job), now)),
        ("P50 finish", _expected_text(job, job.p50_at, now)),
        ("P90 finish", _expected_text(job, job.p90_at, now)),
        ("history", "" if job.ended else job.prediction_note),
        ("laxity", "" if job.ended or job.laxity_s is None else format_seconds(job.laxity_s)),
        ("epochs", epochs_text(job).replace("/", " of ")),
        ("progress", silence_text(job, now)),
        ("stalled", stalled_text(job, now)),
        ("workers", f"{width_text(job)}; may have {on_widths(job.widths)}"),
        ("workers so far", history),
        ("borrowed", format_borrowing(job)),
        ("checkpoint", describe_lost_state(job)),
        ("code", f"changed since the first start: {job.code_changed}" if job.code_changed else ""),
        ("preemptions", str(job.preemptions) if job.preemptions else ""),
        ("attempt", str(job.attempt) if job.attempt > 1 else ""),
        ("waits for", ", ".join(job.held_by)),
        ("expected start", "" if job.workers else instant_text(job.expected_start_at, now)),
        *_end_facts(job, now),
        ("result", "" if job.result is None else _result_text(job.result)),
        ("error", job.error),
        ("MLflow run", job.run_url or job.run_id),
        ("not tracked", job.untracked),
        ("runs in", str((job.raw.get("project") or {}).get("workdir") or "")),
    ]
    return [(name, value) for name, value in lines if value not in {"", "-"}]


def _end_facts(job: JobView, now: float) -> list[tuple[str, str]]:
    """What was expected of an ended job at first, beside the truth; nothing of a cancelled one."""
    if not job.ended:
        return []
    first = (
        []
        if job.state == "cancelled"
        else [
            ("first P50 finish", instant_text(job.first_p50_at, now)),
            ("first P90 finish", instant_text(job.first_p90_at, now)),
        ]
    )
    return [
        *first,
        ("finished" if job.state == "finished" else "ended", instant_text(job.finished_at, now)),
        ("prediction", comparison_text(job)),
    ]


def _expected_text(job: JobView, at: float | None, now: float) -> str:
    if job.ended or at is None:
        return ""
    text = instant_text(at, now) if at > now else format_expected_end(job, at, now)
    return text + pending_text(job)


def format_borrowing(job: JobView) -> str:
    """What it trains on that inference has lent; "" if it never did."""
    if not job.borrowed_gpus and not job.borrowed_gpu_h:
        return ""
    hours = (
        f"{job.borrowed_gpu_h:.2f}" if job.borrowed_gpu_h >= LEAST_GPU_H else f"under {LEAST_GPU_H}"
    )
    total = f"{hours} GPU-hours of inference in all"
    return f"{count_noun(job.borrowed_gpus, 'GPU')} now, {total}" if job.borrowed_gpus else total


def _state_text(job: JobView, now: float) -> str:
    words = "; ".join(filter(None, (state_words(job), part_text(job, now))))
    if job.pinned and not job.ended:
        return f"{words}: counted, never resized or stopped"
    return f"{words}: it stops at the end of its epoch" if job.state == "stopping" else words


def _result_text(result: Any) -> str:
    """The result as JSON in the letters of its user, without terminal escapes."""
    return printable(json.dumps(result, ensure_ascii=False))
