"""What laxity writes on a Job so that nothing else has to remember it: its state and its verdict.

The service may be killed between any two patches. Whoever comes next reads from the Job alone since
when it waits, how often it was stopped, for whom its GPUs were freed, and what it was told.
Annotations can be garbled by hand; what cannot be read counts as not written, and is decided anew.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final, TypeGuard, get_args

import orjson

from laxity import json_tree, names
from laxity.instants import LAST_AT
from laxity.parsing import MOST, finite_number, whole_number
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.node_rows.node_constraints import NOTHING, asks_of
from laxity_k8s.objects.text_cache import TextCache
from laxity_scheduler.model.job import FOREVER, Offer, OfferKind, Promise, Refusal, Verdict
from laxity_scheduler.model.reasons import TEMPLATES, Reason
from laxity_scheduler.store.codec import CodecError, load_verdict, verdict_json

TERMS = (names.DEADLINE, names.CLASS, names.WIDTHS, names.EPOCHS, names.EPOCH_ESTIMATE)
KINDS = ("Promise", "Refusal", "Forecast")
WHOLE: Final = frozenset(
    {
        "preemptions",
        "wanted",
        "failed_starts",
        "cut_epoch",
        "cut_links",
        "written_limit_s",
        "applied",
    }
)
# Read once each, as a Job is looked at several times between two changes: of some 16,000 Jobs.
MOST_BYTES: Final = 64 * 1024 * 1024  # of each kind


@dataclass(frozen=True, slots=True)
class JobStatusRecord:
    """The STATUS annotation. Instants are POSIX seconds.

    `wanted` is the width that laxity asked for last (0: suspended), None before its first word;
    `terms` is the digest of what was judged; after `failed_starts` in a row it is not tried again
    before `not_before`. `cut_links` links in a row were cut off with `cut_epoch` epochs done.
    `written_limit_s` is the activeDeadlineSeconds that laxity wrote for a wall limit. `applied` is how
    often in a row a file was applied that changed its size, the last time at `applied_at`. A stop of a job
    that does not hold state loses all its epochs. `avoided` are nodes on which workers did not run when
    it was started last: the next start prefers others.
    """

    queued_at: float | None = None
    resumed_at: float | None = None
    width_changed_at: float | None = None
    preemptions: int = 0
    attained_gpu_s: float = 0.0
    since: float = 0.0
    freed_for: str = ""
    freed_nodes: tuple[str, ...] = ()
    freed_at: float = 0.0
    terms: str = ""
    wanted: int | None = None
    failed_starts: int = 0
    not_before: float = 0.0
    cut_epoch: int = 0
    cut_links: int = 0
    written_limit_s: int | None = None
    applied: int = 0
    applied_at: float = 0.0
    holds_state: bool = True
    avoided: tuple[str, ...] = ()

    def gpu_s_until(self, instant: float, gpus: int, submitted_at: float) -> float:
        """The GPU-seconds then, if so many GPUs were held since these were counted last."""
        return self.attained_gpu_s + gpus * (instant - max(self.since, submitted_at))

    def count_cut(self, epochs_done: int) -> dict[str, int]:
        """The fields after another link was cut off with so many epochs done."""
        links = self.cut_links + 1 if self.cut_epoch == epochs_done else 1
        return {"cut_epoch": epochs_done, "cut_links": links}

    def to_text(self) -> str:
        """JSON of all that differs from a fresh state."""
        columns = zip(FIELDS, VALUES(self), UNSAID, strict=True)
        written = {name: value for name, value, unsaid in columns if value != unsaid}
        return orjson.dumps(written, option=orjson.OPT_SORT_KEYS).decode()


FRESH = JobStatusRecord()
FIELDS = tuple(field.name for field in fields(JobStatusRecord))
VALUES = attrgetter(*FIELDS)
UNSAID = VALUES(FRESH)


def read_status(job: Json) -> JobStatusRecord:
    """What a Job's STATUS annotation says; a fresh state where it says nothing readable."""
    text = json_tree.annotations_of(job).get(names.STATUS)
    return _known_kept(text) if isinstance(text, str) else FRESH


def read_status_text(text: str) -> JobStatusRecord:
    document = parse_mapping(text)
    fields: dict[str, Any] = {}
    for name in FIELDS:
        value = field_or_none(name, document.get(name))
        if value is not None:
            fields[name] = value
    return JobStatusRecord(**fields)


_known_kept: Final = TextCache(read_status_text, MOST_BYTES)


def digest_terms(job: Json) -> str:
    """A digest of what a verdict is about: when it differs, the job asks again."""
    annotations = json_tree.annotations_of(job)
    texts = [annotations.get(key) for key in TERMS]
    if names.WALL_LIMIT in annotations:
        texts.append(annotations[names.WALL_LIMIT])
    elif (limit_s := own_limit_s(job)) is not None:
        texts.append(f"activeDeadlineSeconds {limit_s}")
    asks = asks_of(json_tree.mapping_at(job, "spec", "template"))
    if asks is not NOTHING:  # on other nodes it is another job
        texts.append(asks.text)
    text = json.dumps(texts)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def asks_again(job: Json) -> bool:
    """Whether what was judged has been changed since, by amending it or accepting an offer."""
    return read_status(job).terms not in ("", digest_terms(job))


def own_limit_s(job: Json) -> int | None:
    """The Job's activeDeadlineSeconds; None where it has none, or laxity wrote it."""
    limit_s = whole_number(json_tree.get_in(job, "spec", "activeDeadlineSeconds"))
    return None if limit_s == read_status(job).written_limit_s else limit_s


def read_refused_deadline(job: Json) -> Mapping[str, Any]:
    """{"deadline", "code", "reason"} of the deadline that was refused while its promise stands."""
    return parse_mapping(json_tree.annotations_of(job).get(names.REFUSED_DEADLINE))


def verdict_text(verdict: Verdict) -> str:
    """{"kind": "promise" | "refusal" | "forecast", ...} as the VERDICT annotation has it."""
    written = verdict_json(verdict)
    return orjson.dumps({**written, "kind": written["kind"].lower()}).decode()


def read_verdict(job: Json) -> Verdict | None:
    text = json_tree.annotations_of(job).get(names.VERDICT)
    return _known_verdict(text) if isinstance(text, str) else None


def _parse_verdict(text: str) -> Verdict | None:
    document = parse_mapping(text)
    kind = str(document.get("kind", "")).capitalize()
    if kind not in KINDS:
        return None
    try:
        verdict = load_verdict({**document, "kind": kind})
    except (CodecError, RecursionError):
        return None
    return verdict if verdict is not None and _makes_sense(verdict) else None


_known_verdict: Final = TextCache(_parse_verdict, MOST_BYTES)


def verdict_label(found: Verdict | None) -> str:
    if found is None:
        return "none"
    if isinstance(found, Promise):
        return "promised"
    return "refused" if isinstance(found, Refusal) else "forecast"


def parse_mapping(text: object) -> Mapping[str, Any]:
    """The JSON object that an annotation holds; an empty one where it holds none."""
    try:
        document = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def field_or_none(name: str, value: object) -> object:
    """The value of a field of Kept; None where it can be none."""
    if name in {"freed_for", "terms"}:
        return value if isinstance(value, str) else None
    if name == "freed_nodes":
        return tuple(value) if _are_texts(value) else None
    if name == "holds_state":
        return value if isinstance(value, bool) else None
    if name in WHOLE:
        return whole_number(value) if isinstance(value, int) else None
    return finite_number(value, least=0.0, most=MOST if name == "attained_gpu_s" else LAST_AT)


def _makes_sense(found: Verdict) -> bool:
    """Whether a verdict that anybody may have written has values of the types that it says."""
    if not _is_reason(found.reason):
        return False
    if isinstance(found, Promise):
        runs = all(_is_instant(until) and _is_count(workers) for until, workers in found.runs)
        instants = (found.deadline_at, found.p50_at, found.p90_at)
        return runs and _are_texts(found.rests_on) and all(map(_is_instant, instants))
    if isinstance(found, Refusal):
        return _is_instant(found.p90_at) and all(map(_is_offer, found.offers))
    return all(map(_is_instant, (found.p50_at, found.p90_at, found.late_by_s)))


def _is_offer(found: Offer) -> bool:
    instants = (found.deadline_at, found.p50_at, found.p90_at, found.checked_at)
    counts = (*found.widths, found.gpus_borrowed)
    return (
        found.kind in get_args(OfferKind)
        and all(map(_is_instant, instants))
        and all(map(_is_count, counts))
    )


def _is_reason(found: Reason) -> bool:
    code: object = found.code
    template = TEMPLATES.get(code) if isinstance(code, str) else None
    if template is None or not all(_is_fact(name, value) for name, value in found.facts):
        return False
    return ":." not in template or _can_be_told(found)  # else any fact can be put in


def _can_be_told(found: Reason) -> bool:
    try:
        return bool(found.text)
    except (TypeError, ValueError):  # a word where its template has a figure
        return False


def _is_fact(name: object, value: object) -> bool:
    if isinstance(value, int) and not -MOST <= value <= MOST:
        return False
    return isinstance(name, str) and (value is None or isinstance(value, str | int | float))


def _is_instant(value: object) -> bool:
    """Seconds, and infinity for never."""
    return value == FOREVER or finite_number(value) is not None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and whole_number(value) is not None


def _are_texts(value: object) -> TypeGuard[Collection[str]]:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
