"""Events are news for people: a repetition is counted, and what needs somebody is a Warning."""

from collections.abc import Mapping
from typing import Any

import pytest

from laxity import json_tree
from laxity_k8s.act.event_writer import EventWriter
from laxity_k8s.cluster_api import ApiError, Json, Patch
from tests.support.manifests import job


class Recorder:
    """The part of a ClusterApi that writes Events; what was deleted is not found any more."""

    def __init__(self) -> None:
        self.events: dict[str, Json] = {}

    def create(self, kind: str, body: Mapping[str, Any]) -> Json:
        assert kind == "events"
        self.events[json_tree.object_id(dict(body))] = dict(body)
        return dict(body)

    def patch(self, patch: Patch) -> Json:
        if patch.id not in self.events:
            raise ApiError("not found", status=404)
        self.events[patch.id] = {**self.events[patch.id], **patch.body}
        return self.events[patch.id]


def written(*said: tuple[str, str], api: Recorder | None = None) -> list[Json]:
    recorder = api or Recorder()
    writer = EventWriter(recorder)  # type: ignore[arg-type]
    for code, words in said:
        writer.add_event(job(), code, words)
    writer.close()
    return list(recorder.events.values())


def test_a_repeated_event_is_counted_and_not_written_again() -> None:
    found = written(("no_free_gpus", "waits"), ("due_first", "starts"), ("no_free_gpus", "waits"))
    assert [(one["reason"], one["count"]) for one in found] == [("NoFreeGpus", 2), ("DueFirst", 1)]


def test_other_words_or_another_job_are_another_event() -> None:
    recorder = Recorder()
    writer = EventWriter(recorder)  # type: ignore[arg-type]
    for name, words in (("a", "waits"), ("a", "still waits"), ("b", "waits")):
        writer.add_event(job(name), "no_free_gpus", words)
    writer.close()
    assert [one["count"] for one in recorder.events.values()] == [1, 1, 1]


def test_many_of_one_kind_with_other_words_become_one_event() -> None:
    found = written(*[("promise_moved", f"P90 finish {number}") for number in range(25)])
    assert len(found) == 11
    assert (found[-1]["count"], found[-1]["message"]) == (
        15,
        "(combined from similar events): P90 finish 24",
    )


def test_an_event_that_was_deleted_is_written_anew() -> None:
    recorder = Recorder()
    writer = EventWriter(recorder)  # type: ignore[arg-type]
    writer.add_event(job(), "no_free_gpus", "waits")
    writer.close()
    recorder.events.clear()
    again = EventWriter(recorder)  # type: ignore[arg-type]
    again._counts = writer._counts
    again.add_event(job(), "no_free_gpus", "waits")
    again.close()
    assert [one["count"] for one in recorder.events.values()] == [1]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("promise_in_danger", "Warning"),
        ("promise_broken", "Warning"),
        ("capacity_promised_to_others", "Warning"),
        ("pods_do_not_fit", "Warning"),
        ("due_first", "Normal"),
        ("no_free_gpus", "Normal"),
        ("fits", "Normal"),
    ],
)
def test_what_needs_somebody_is_a_warning(code: str, kind: str) -> None:
    assert [one["type"] for one in written((code, "words"))] == [kind]
