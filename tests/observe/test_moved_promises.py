"""That a waiting job's promise moved is known to plans at once, and told its Job with the next word."""

from dataclasses import replace

import pytest

from laxity import names
from laxity_k8s.act.patches import JobPatch
from laxity_k8s.act.plan_patches import WaitFilter, plan_patches
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects.status_annotation import JobStatusRecord, digest_terms, verdict_text
from laxity_k8s.observe.moved_promises import WITHIN_S
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Decision, Promised, Wait
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.service.views.verdict_view import shows_verdict_of, verdict_fields
from tests.support.builders import promise
from tests.support.manifests import CREATED_AT, job, node
from tests.support.quota_place import Place

WAITS = Wait("default/job", reason("no_free_gpus", needed_gpus=1, gpus_per_worker=1, free_gpus=0))
STARTS = Admit("default/job", 1, ("a",), reason("due_first", slack_s=9.0, workers=1))
OLD = promise(CREATED_AT + 3600.0)


class Waiting(Place):
    """A promised Job that waits, and what is written on it."""

    def __init__(self) -> None:
        made = job(verdict=verdict_text(OLD))
        made["metadata"]["annotations"][names.STATUS] = JobStatusRecord(
            terms=digest_terms(made)
        ).to_text()
        super().__init__(made)
        self.waits, self.now = WaitFilter(), CREATED_AT + 10.0
        self.write(WAITS)

    def state(self) -> ClusterState:
        with self.cache.take_dirty() as (touched, nodes):
            return self.snapshot.take_state(touched, nodes=nodes, now=self.now, cycle=1)

    def write(self, *decisions: Decision) -> JobPatch | None:
        """The Job's patch; what it says stands on the Job."""
        made = plan_patches(
            decisions, self.state(), self.snapshot, self.waits, cycle=1, guard=Guard("test")
        )
        return made[0] if made else None

    def moves(self, earlier_s: float, code: str = "promise_moved") -> Promised:
        p90_at = OLD.p90_at - earlier_s
        why = reason(code, moved_s=-1.0, p90_at=p90_at, late_s=1.0, workers=1)
        return Promised("default/job", replace(OLD, p90_at=p90_at, reason=why), why)

    @property
    def p90_at(self) -> float:
        verdict = self.state().by_id["default/job"].verdict
        assert verdict is not None
        return verdict.p90_at


def test_moves_of_a_waiting_promise_are_known_at_once_and_written_with_its_start() -> None:
    place = Waiting()
    assert place.write(place.moves(100.0), WAITS) is None
    assert place.p90_at == OLD.p90_at - 100.0
    assert place.write(place.moves(200.0), WAITS) is None
    assert place.p90_at == OLD.p90_at - 200.0
    patch = place.write(STARTS)
    assert patch is not None
    written = patch.patch.body["metadata"]["annotations"]
    assert str(OLD.p90_at - 200.0)[:9] in written[names.VERDICT]
    assert written[names.REASON] == STARTS.reason.text
    assert [code for code, _ in patch.events] == ["due_first"], "that it moved is no news any more"


def test_moves_are_written_a_minute_after_the_first_with_how_far_it_has_moved() -> None:
    place = Waiting()
    assert place.write(place.moves(100.0), WAITS) is None
    place.now += WITHIN_S - 1.0
    assert place.write(place.moves(200.0), WAITS) is None
    place.state()
    assert place.snapshot.due_at == pytest.approx(place.now + 1.0)
    place.now += 1.0
    patch = place.write(WAITS)
    assert patch is not None
    assert [code for code, _ in patch.events] == ["promise_moved"]
    assert "3m20s earlier" in dict(patch.events)["promise_moved"]
    assert place.snapshot.due_at > place.now


def test_what_is_written_of_several_moves_is_how_far_it_is_from_what_the_job_says() -> None:
    place = Waiting()
    assert place.write(place.moves(100.0), WAITS) is None
    patch = place.write(place.moves(200.0), replace(WAITS, reason=STARTS.reason))
    assert patch is not None
    assert "3m20s earlier" in dict(patch.events)["promise_moved"]


def test_the_store_knows_a_promise_that_has_moved_since_it_was_written_on_its_job() -> None:
    """Else the loss of the key to the seal takes it from a Job that waits."""
    place = Waiting()
    place.write(place.moves(100.0), WAITS)
    manifest = place.cache.jobs["default/job"]
    view = verdict_fields(place.state().by_id["default/job"].verdict)
    assert shows_verdict_of(view, manifest)
    forged = verdict_text(replace(OLD, deadline_at=OLD.deadline_at - 1.0))
    assert not shows_verdict_of(view, job(verdict=forged))


@pytest.mark.parametrize(
    ("code", "others"),
    [("promise_in_danger", (WAITS,)), ("promise_moved", (replace(WAITS, reason=STARTS.reason),))],
    ids=["a promise in danger", "it waits for something else"],
)
def test_anything_else_is_written_at_once(code: str, others: tuple[Decision, ...]) -> None:
    place = Waiting()
    assert place.write(place.moves(100.0, code), *others) is not None


def test_moves_of_a_running_job_are_written_at_once() -> None:
    place = Waiting()
    place.put(node("a"), job(suspend=False, nodes='["a"]', verdict=verdict_text(OLD)))
    assert place.write(place.moves(100.0)) is not None


def test_what_somebody_else_writes_on_the_job_stands() -> None:
    place = Waiting()
    place.write(place.moves(100.0), WAITS)
    later = replace(OLD, deadline_at=OLD.deadline_at + 60.0, p90_at=OLD.p90_at + 60.0)
    place.put(job(verdict=verdict_text(later)))
    assert place.p90_at == later.p90_at


def test_a_job_that_is_gone_leaves_nothing_behind() -> None:
    place = Waiting()
    place.write(place.moves(100.0), WAITS)
    place.cache.drop_object("jobs", "default/job")
    place.write(replace(WAITS, job="default/other"))
    assert place.snapshot.moved_promises.due_at("default/job", place.now) == float("inf")
