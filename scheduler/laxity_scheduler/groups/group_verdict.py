"""The verdict on a whole group, from how its steps are laid out."""

from dataclasses import replace
from typing import Any

from laxity.human_time import count_noun
from laxity_scheduler.groups.composition import divide_time, guilty_step
from laxity_scheduler.groups.group import Group, Json
from laxity_scheduler.groups.layout import GroupLayout
from laxity_scheduler.model.cluster import ClusterState, Reserved
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.promising.promise import offer_margin_s
from laxity_scheduler.promising.reservations import Reservations, promised_gpu_s


def p90_s_of(layout: GroupLayout) -> float:
    return FOREVER if layout.blocked else layout.course.quantile_s(0.9)


def judged(group: Group, layout: GroupLayout, reservations: Reservations) -> Group:
    """The group with its verdict, behind all that is promised already."""
    state = reservations.state
    now, p90_s = state.now, p90_s_of(layout)
    late_s = now + p90_s - group.deadline_at
    course = layout.course
    shares = divide_time(course, max(0.0, group.deadline_at - now))
    if layout.blocked:
        needs = layout.reserved[layout.blocked]
        why = reason(
            "group_does_not_fit", step=layout.blocked,
            needed_gpus=needs.gpus, free_gpus=_count_usable(state, needs),
        )  # fmt: skip
        return replace(group, state="refused", verdict=verdict_of("refused", why))
    figures = {"p50_at": now + course.quantile_s(0.5), "p90_at": now + p90_s}
    if group.service_class != "hard":
        code = "forecast_late" if late_s > 0.0 else "forecast"
        why = reason(code, p90_at=now + p90_s, late_s=max(0.0, late_s))
        return replace(group, state="active", verdict=verdict_of("forecast", why, **figures))
    if late_s > 0.0:
        step = guilty_step(course)
        why = reason(
            "group_too_slow", p90_at=now + p90_s, late_s=late_s,
            step=step, takes_s=shares[step].takes_s,
        )  # fmt: skip
        if group.deadline_at <= now:
            why = reason("deadline_in_the_past", due_at=group.deadline_at)
        margin_s = offer_margin_s(p90_s)
        offers = _offers(layout, step, now + p90_s + margin_s)
        verdict = verdict_of("refused", why, offers=offers, **figures)
        return replace(group, state="refused", verdict=verdict)
    over = _over_budget(group, layout, reservations)
    if over is not None:
        verdict = verdict_of("refused", over, **figures)
        return replace(group, state="refused", verdict=verdict)
    way = ", ".join(name for name, share in shares.items() if share.is_critical)
    why = reason("group_fits", p90_at=now + p90_s, slack_s=-late_s, way=way)
    return replace(group, state="active", verdict=verdict_of("promised", why, **figures))


def _count_usable(state: ClusterState, needs: Reserved) -> int:
    """GPUs that the workers of a step may have at a time: whole workers on their nodes, in their quota."""
    size, nodes = needs.gpus_per_worker, state.capacity(needs.eligible).training
    on_nodes = sum(count * (gpus // size) * size for gpus, count in nodes.items())
    return min(on_nodes, (state.quotas or {}).get(needs.quota, on_nodes))


def without_promise(group: Group, policy: str) -> Group:
    """A forecast in place of a promise, where what decides keeps nothing for coming steps."""
    if not group.promised:
        return group
    figures = {name: group.verdict[name] for name in ("p50_at", "p90_at")}
    why = reason("group_not_kept", p90_at=figures["p90_at"], policy=policy)
    return replace(group, verdict=verdict_of("forecast", why, **figures))


def _over_budget(group: Group, layout: GroupLayout, reservations: Reservations) -> Reason | None:
    """Why its namespace may not have so much promised at a time; None if it may."""
    budget = (reservations.state.budgets or {}).get(group.namespace)
    if budget is None:
        return None
    held = promised_gpu_s(reservations, group.namespace)
    needed = sum(kept.gpus * (kept.until_at - kept.from_at) for kept in layout.reserved.values())
    if held + needed <= budget:
        return None
    return reason(
        "capacity_budget_spent", namespace=group.namespace,
        left_gpu_h=max(0.0, budget - held) / 3600.0, budget_gpu_h=budget / 3600.0,
        needed_gpu_h=needed / 3600.0,
    )  # fmt: skip


def verdict_of(kind: str, why: Reason, **more: Any) -> Json:
    said = {"verdict": kind, "reason_code": why.code, "reason": why.text, "offers": []}
    return said | {"p50_at": None, "p90_at": None} | more


def _offers(layout: GroupLayout, step: str, due_at: float) -> list[Json]:
    """What would do: a later deadline, or more room for jobs side by side."""
    part = next(part for part in layout.course.parts if part.name == step)
    later = reason("offer_later", due_at=due_at).text
    offers: list[Json] = [{"kind": "deadline", "deadline_at": due_at, "text": later}]
    if part.at_once < part.count and step in layout.reserved:
        each = layout.reserved[step].gpus // max(1, part.at_once)
        gpus = (part.count - part.at_once) * each
        wider = f"{count_noun(gpus, 'more GPU')}: then all jobs of {step} run side by side"
        offers.append({"kind": "gpus", "gpus": gpus, "text": wider})
        fewer = f"{part.at_once} instead of {count_noun(part.count, 'job')} in step {step}"
        offers.append({"kind": "count", "count": part.at_once, "text": fewer})
    return offers
