"""A tenant who reads his Job learns no name of a Job in another namespace, whatever is done for it."""

import json
from pathlib import Path
from typing import Any

from laxity import json_tree, names
from laxity_k8s.cluster_api import Patch
from laxity_k8s.live_cluster import LiveCluster
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.decision import Preempt
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies.qos import decide
from tests.support.breaking import put, seen
from tests.support.builders import MINUTE_EPOCHS
from tests.support.manifests import EVER_SUSPENDED, SUSPENDED, job
from tests.support.still_cluster import RUNNING, opened

MINE, THEIRS = "alice/mine", "bob/secret"
WHY = reason("preempt_for", beneficiary=THEIRS, gpus=1)


def of(namespace: str, name: str, **said: Any) -> dict[str, Any]:
    made = job(name, **said)
    made["metadata"]["namespace"] = namespace
    return made


def test_a_job_stopped_for_one_of_another_namespace_does_not_name_it(tmp_path: Path) -> None:
    running = of("alice", "mine", suspend=False, nodes='["a"]', status=EVER_SUSPENDED)
    running["metadata"]["annotations"][names.STATUS] = RUNNING.to_text()
    with opened(tmp_path) as world:
        put(world, of("bob", "secret"))
        put(world, running)
        seen(world, MINE, THEIRS)
        world.observe()
        world.carry_out(Plan((Preempt(MINE, "epoch", THEIRS, WHY),)))
        asked = world.observe().by_id[MINE]
        while_asked = world.api.get("jobs", MINE)
        world.carry_out(Plan((Preempt(MINE, "now", THEIRS, WHY),)))
        stopped = {**world.api.get("jobs", MINE), "status": SUSPENDED}
        put(world, stopped)
        seen(world, MINE)
        holds = world.observe().holds
    with opened(tmp_path) as world:
        after_a_restart = world.observe().holds
        events = world.api.rows.list_objects("events").items  # type: ignore[attr-defined]
    assert (asked.stop_requested_at is not None, asked.stop_for) == (True, THEIRS)
    assert [hold.job for hold in holds] == [hold.job for hold in after_a_restart] == [THEIRS]
    told = [json_tree.get_in(one, "message") for one in events]
    assert any("a job of another namespace needs 1 GPU" in text for text in told), told
    assert not any("bob/" in json.dumps(one) for one in (while_asked, stopped, *events))


def test_a_stop_that_leaves_a_cordoned_node_is_for_nobody_once_it_is_uncordoned(
    tmp_path: Path,
) -> None:
    running = of("alice", "mine", suspend=False, nodes='["a"]', status=EVER_SUSPENDED)
    running["metadata"]["annotations"][names.STATUS] = RUNNING.to_text()
    with opened(tmp_path) as world:
        put(world, running)
        seen(world, MINE)
        leaves = Preempt(MINE, "epoch", MINE, reason("node_cordoned", node="a"))
        stops = []
        for is_cordoned in (True, False, True):
            cordon(world, is_cordoned=is_cordoned)
            stops.append(world.observe().by_id[MINE].stop_for)
            if not stops[0]:
                world.carry_out(Plan((leaves,)))
                stops[0] = world.observe().by_id[MINE].stop_for
        cordon(world, is_cordoned=False)
        plan = with_follow_ups(decide)(world.observe(), MINUTE_EPOCHS)
        world.carry_out(plan)
        assert stops == [MINE, "the drain of a", MINE]
        assert world.observe().by_id[MINE].stop_requested_at is None
        why = json_tree.annotations_of(world.api.get("jobs", MINE))[names.REASON]
        assert why == "it runs on: the drain of a no longer needs its GPUs"


def cordon(world: LiveCluster, *, is_cordoned: bool) -> None:
    changed = world.api.patch(Patch("nodes", "a", {"spec": {"unschedulable": is_cordoned}}))
    world._cache.put_object("nodes", changed)
