"""Journalled decisions as `explain` and `decisions` answer them: repeats are one entry."""

from collections.abc import Iterable
from typing import Any

import orjson

from laxity_scheduler.service.views.view_fields import Json


def fold_repeats(rows: Iterable[Any]) -> list[Json]:
    """Decisions, oldest first; repeats about a job become one entry with `times` and `first_at`.

    The entry is the last of the repeats; `first_at` is the instant of the first one.
    """
    folded: dict[int, Json] = {}
    last: dict[str, tuple[object, int]] = {}
    for number, row in enumerate(rows):
        view = {"job": row.job, **decision_view(row), "first_at": row.at, "times": 1}
        same = (row.kind, row.reason_code, view["decision"].get("workers"))
        before, place = last.get(row.job, (None, 0))
        if before == same:
            old = folded.pop(place)
            view |= {"first_at": old["first_at"], "times": old["times"] + 1}
        folded[number] = view
        last[row.job] = (same, number)
    return list(folded.values())


def decision_view(row: Any) -> Json:
    """A journalled decision as `explain` lists it."""
    body = orjson.loads(row.body)
    decision = {"kind": row.kind}
    decision |= {
        name: body[name] for name in ("workers", "nodes", "at", "beneficiary") if name in body
    }
    return {
        "cycle": row.cycle,
        "at": row.at,
        "decision": decision,
        "reason_code": row.reason_code,
        "reason": row.reason,
    }
