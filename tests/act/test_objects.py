"""What a Job declares and what laxity has written on it become its row, whatever people write."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity import names
from laxity_k8s.objects.jobs import BadJob, job_row
from laxity_k8s.objects.status_annotation import (
    JobStatusRecord,
    read_status,
)
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import reason
from tests.support.manifests import CREATED_AT, job
from tests.support.rows import row

WHY = reason("fits", p90_at=60.0, slack_s=5.0, workers=2)


def test_what_the_user_declared_is_in_the_row() -> None:
    made = job(
        deadline="20m",
        widths="1,2,4",
        model="mlp",
        samples="100",
        batch_size="10",
        dataset_bytes="5",
        epoch_estimate="30s",
        gpus=2,
    )
    found = row(made)
    assert (found.id, found.service_class, found.widths) == ("default/job", "hard", (1, 2, 4))
    assert (found.submitted_at, found.deadline_at) == (CREATED_AT, CREATED_AT + 1200)
    work = found.workload
    assert (work.model, work.epochs, work.samples, work.batch_size) == ("mlp", 10, 100, 10)
    assert (work.dataset_bytes, work.user_epoch_s, found.gpus_per_worker) == (5, 30.0, 2)


@pytest.mark.parametrize(
    ("claimed", "place_s", "counts_from_s"),
    [
        pytest.param("2026-11-21T08:00:00.250Z", 0.25, 0.25, id="milliseconds of its creation"),
        pytest.param("2000-01-01T00:00:00Z", 0.0, None, id="the year 2000"),
        pytest.param("2026-11-21T07:00:00Z", 0.0, -3600.0, id="a scheduled time"),
        pytest.param("2026-11-21T08:30:00Z", 0.0, 0.0, id="after its creation"),
    ],
)
def test_a_claimed_submission_tightens_a_deadline_and_moves_no_place_in_the_queue(
    claimed: str, place_s: float, counts_from_s: float | None
) -> None:
    found = row(job(deadline="2h", submitted_at=claimed))
    assert (found.submitted_at, found.queued_at) == (CREATED_AT + place_s, CREATED_AT + place_s)
    if counts_from_s is None:
        assert found.deadline_at < CREATED_AT
    else:
        assert found.deadline_at == CREATED_AT + counts_from_s + 7200.0


def test_a_submission_in_the_future_is_refused_in_words() -> None:
    found = job_row(job(deadline="2h", submitted_at="2090-01-01T00:00:00Z"))
    assert isinstance(found, BadJob)
    assert found.problems == ("submitted-at: 2090-01-01T00:00:00Z lies in the future",)


def test_an_instant_is_the_deadline_itself() -> None:
    assert row(job(deadline="2026-11-21T09:00Z")).deadline_at == CREATED_AT + 3600
    assert row(job()).deadline_at == FOREVER


@pytest.mark.parametrize(
    ("largest", "want"),
    [
        pytest.param(1, (1,), id="one GPU"),
        pytest.param(5, (1, 2, 4), id="powers of two that fit"),
        pytest.param(500, (1, 2, 4, 8), id="eight at most"),
        pytest.param(0, (1,), id="an empty cluster"),
    ],
)
def test_without_widths_laxity_chooses_from_what_the_cluster_holds(
    largest: int, want: tuple[int, ...]
) -> None:
    assert row(job(widths="auto"), largest=largest).widths == want


@pytest.mark.parametrize(
    ("largest", "running", "want"),
    [
        pytest.param(2, 0, (1, 2), id="as wide as the cluster"),
        pytest.param(0, 0, (1,), id="an empty cluster"),
        pytest.param(2, 4, (1, 2, 3, 4), id="what runs stays among them"),
        pytest.param(5000, 0, tuple(range(1, 4097)), id="a cluster that holds all"),
    ],
)
def test_declared_widths_are_cut_to_what_the_cluster_holds(
    largest: int, running: int, want: tuple[int, ...]
) -> None:
    made = job(widths="1..4096")
    made["spec"] |= {"suspend": not running, "parallelism": running or 1}
    assert row(made, largest=largest).widths == want


def test_of_widths_that_are_all_too_wide_the_least_is_judged() -> None:
    assert row(job(widths="8,16"), largest=2).widths == (8,)


@given(st.dictionaries(st.sampled_from(sorted(names.OUTPUTS)), st.text(max_size=40)))
def test_garbled_output_annotations_are_read_as_not_written(said: dict[str, str]) -> None:
    made = job()
    made["metadata"]["annotations"] |= said
    assert isinstance(job_row(made), Job)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
        max_leaves=6,
    )
)
def test_any_json_in_the_status_annotation_is_survived(said: object) -> None:
    made = job()
    made["metadata"]["annotations"][names.STATUS] = json.dumps(said)
    assert isinstance(job_row(made), Job)


def test_what_is_kept_is_read_back_as_it_was_written() -> None:
    state = JobStatusRecord(1.0, 2.0, 3.0, 4, 5.0, 6.0, "default/b", ("n", "n"), 7.0, "abc", 2)
    made = job()
    made["metadata"]["annotations"][names.STATUS] = state.to_text()
    assert read_status(made) == state
