"""GPUs that a job borrows from inference are counted, and told: in its view, to people, in MLflow."""

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from laxity.api.job_view import job_view
from laxity.cli.render.decisions import chain_lines
from laxity.cli.render.job_panel import job_panel
from laxity_scheduler.live import Report
from laxity_scheduler.model.cluster import ClusterState, InferenceDemand, Pool
from laxity_scheduler.model.job import Job
from laxity_scheduler.notifications.mlflow_sink import tags_of
from laxity_scheduler.service.views.live_view import readable_view
from laxity_scheduler.service.views.view_cache import CycleInput, ViewCache
from tests.support.builders import job, node

T0 = 10_000.0
TAG = "laxity.borrowed_gpu_h"


def row_with(lent: int) -> Job:
    """Two workers of two GPUs at home, and some on a lent node."""
    nodes = ("t0",) * 2 + ("l0",) * lent
    row = job("a", workers=(2, 3, 4), running=2 + lent, nodes=nodes)
    return replace(row, gpus_per_worker=2)


class Watched:
    """One job of two own workers, and what is seen of it at some instants."""

    def __init__(self) -> None:
        self.views = ViewCache()
        self.rows: dict[int, Job] = {}  # the same object as long as nothing happens to the job
        self.manifest: dict[str, Any] = {
            "metadata": {"name": "a", "namespace": "team", "uid": "uid-a", "resourceVersion": "1"}
        }

    def look(
        self, after_s: float, *, lent: int = 0, pool: Pool = "loaned", there: bool = True
    ) -> None:
        row = self.rows.setdefault(lent, row_with(lent))
        nodes = (node("t0"), replace(node("l0"), pool=pool))
        rows = (row,) if there else ()
        state = ClusterState(T0 + after_s, nodes, rows, inference=InferenceDemand(0.0))
        self.views.update_views(CycleInput([self.manifest], state, {}, {}), lambda _: Report())

    def end(self, after_s: float) -> None:
        at = f"1970-01-01T{int(T0 + after_s) // 3600:02d}:{int(T0 + after_s) % 3600 // 60:02d}:{int(T0 + after_s) % 60:02d}Z"
        done = {"type": "Complete", "status": "True", "lastTransitionTime": at}
        self.manifest["status"] = {"conditions": [done], "completionTime": at}
        self.manifest["metadata"]["resourceVersion"] = "2"
        self.look(after_s + 500.0, there=False)

    def answer(self, after_s: float) -> dict[str, Any]:
        view = self.views.view("team/a")
        assert view is not None
        return readable_view(view, T0 + after_s)


def test_gpu_hours_are_counted_while_workers_are_on_lent_nodes() -> None:
    seen = Watched()
    seen.look(0.0)
    assert (seen.answer(0.0)["borrowed_gpus"], seen.answer(0.0)["borrowed_gpu_h"]) == (0, 0.0)
    seen.look(100.0, lent=2)
    assert seen.answer(1_000.0)["borrowed_gpus"] == 4
    assert seen.answer(1_000.0)["borrowed_gpu_h"] == pytest.approx(4 * 900 / 3_600)
    seen.look(1_900.0, lent=1)
    seen.look(3_700.0)
    assert seen.answer(9_000.0)["borrowed_gpus"] == 0
    assert seen.answer(9_000.0)["borrowed_gpu_h"] == pytest.approx(2.0 + 1.0)


def test_a_node_that_is_inferences_again_is_not_borrowed_though_the_job_has_not_changed() -> None:
    seen = Watched()
    seen.look(0.0, lent=2)
    seen.look(900.0, lent=2, pool="training")
    assert seen.answer(5_000.0)["borrowed_gpu_h"] == pytest.approx(1.0)


def test_an_ended_job_borrows_no_longer_than_to_its_end() -> None:
    seen = Watched()
    seen.look(0.0, lent=2)
    seen.end(900.0)
    assert seen.answer(9_000.0)["state"] == "finished"
    assert seen.answer(9_000.0)["borrowed_gpu_h"] == pytest.approx(1.0)


def test_a_job_that_is_gone_borrows_nothing_more() -> None:
    seen = Watched()
    seen.look(0.0, lent=2)
    state = ClusterState(T0 + 900.0, (), ())
    seen.views.update_views(CycleInput([], state, {}, {}), lambda _: Report())
    assert seen.answer(9_000.0)["borrowed_gpu_h"] == pytest.approx(1.0)


def test_what_was_borrowed_outlives_a_restart() -> None:
    seen = Watched()
    seen.look(0.0, lent=2)
    again = Watched()
    again.views = ViewCache(seen.views.rows_to_save())
    again.look(900.0)
    assert again.answer(9_000.0)["borrowed_gpu_h"] == pytest.approx(1.0)


def text_of(part: Any) -> str:
    console = Console(width=120)
    with console.capture() as printed:
        console.print(part)
    return printed.get()


def test_people_are_told_in_explain_and_show() -> None:
    seen = Watched()
    seen.look(0.0)
    assert "borrowed" not in text_of(chain_lines({"job": seen.answer(0.0)}, now=T0))
    seen.look(0.0, lent=2)
    answer = seen.answer(900.0)
    words = "4 GPUs now, 1.00 GPU-hours of inference in all"
    assert f"borrowed: {words}" in text_of(chain_lines({"job": answer}, now=T0))
    assert words in text_of(job_panel(job_view(answer), now=T0))
    seen.look(900.0)
    told = text_of(chain_lines({"job": seen.answer(1_000.0)}, now=T0))
    assert "borrowed: 1.00 GPU-hours of inference in all" in told


def test_the_run_of_a_job_that_borrowed_has_a_tag_and_others_have_none() -> None:
    seen = Watched()
    seen.look(0.0)
    view = seen.views.view("team/a")
    assert view is not None
    assert TAG not in tags_of(view)
    seen.look(0.0, lent=2)
    seen.end(900.0)
    view = seen.views.view("team/a")
    assert view is not None
    assert tags_of(view)[TAG] == "1"
