"""A pod that is lost after its start has its time to come again, before its job is made narrower."""

from laxity_k8s.observe.hanging_starts import AGAIN_S, HANGS_S
from tests.support.manifests import EVER_SUSPENDED, SUSPENDED, pod
from tests.support.trained_job import FIT_S, NOW, Seen, trained_for_an_hour


def test_a_worker_that_is_being_replaced_is_waited_for() -> None:
    seen = trained_for_an_hour()
    seen.lose(0)
    assert seen.look(NOW + 1.0).fitting_workers is None
    seen.put(pod(0, node="a", phase="Pending"))
    assert seen.look(NOW + 5.0).fitting_workers is None
    for read_at in (NOW + 1.0 + HANGS_S, NOW + 1.0 + HANGS_S + AGAIN_S):
        assert seen.snapshot.due_at == read_at, "its Events are read meanwhile"
        seen.snapshot.read_events(lambda _: "", read_at)
        assert seen.look(read_at).fitting_workers is None
    assert seen.snapshot.due_at == NOW + 1.0 + FIT_S


def test_one_that_does_not_come_again_in_time_does_not_fit() -> None:
    seen = trained_for_an_hour()
    seen.lose(1)
    seen.look(NOW + 1.0)
    assert seen.look(NOW + 1.0 + FIT_S).fitting_workers == 1


def test_the_time_begins_anew_once_all_have_run() -> None:
    seen = trained_for_an_hour()
    seen.lose(1)
    seen.look(NOW + 1.0)
    seen.put(pod(1, node="a"))
    seen.look(NOW + 50.0)
    seen.lose(1)
    seen.look(NOW + 55.0)
    assert seen.look(NOW + 100.0).fitting_workers is None
    assert seen.look(NOW + 55.0 + FIT_S).fitting_workers == 1


def test_a_service_started_anew_waits_once_more() -> None:
    seen = Seen()
    seen.put(pod(0, node="a"))
    assert seen.look(NOW).fitting_workers is None
    assert seen.look(NOW + FIT_S).fitting_workers == 1


def test_the_time_of_pods_begins_when_the_job_controller_has_seen_the_start() -> None:
    seen = Seen()
    seen.has(SUSPENDED)
    assert seen.look(NOW).fitting_workers is None
    assert seen.look(NOW + 5 * FIT_S).fitting_workers is None
    seen.has(EVER_SUSPENDED)
    assert seen.look(NOW + 6 * FIT_S).fitting_workers is None
    assert seen.look(NOW + 7 * FIT_S - 1.0).fitting_workers is None
    assert seen.look(NOW + 7 * FIT_S).fitting_workers == 0


def test_a_job_that_is_gone_with_its_pods_leaves_nothing_behind() -> None:
    seen = trained_for_an_hour()
    ((job_id, made),) = seen.cache.jobs.items()
    for index in (0, 1):
        seen.lose(index)
    seen.look(NOW + 1.0)
    seen.snapshot.reject(job_id, "it makes no sense")
    seen.cache.drop_object("jobs", job_id)
    with seen.cache.take_dirty() as (touched, nodes):
        assert not seen.snapshot.take_state(touched, nodes=nodes, now=NOW + 2.0, cycle=1).jobs
    assert seen.snapshot.wait_anew(NOW + 3.0) == ()
    seen.put(made)
    assert seen.look(NOW + 4.0).id == job_id, "no rejection is left of it"
