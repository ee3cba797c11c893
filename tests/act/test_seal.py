"""What laxity says on a Job counts only with its seal: a copied or forged promise is none."""

import base64
from typing import Any

import pytest

from laxity import json_tree, names
from laxity_k8s.act.resealing import reseal_jobs
from laxity_k8s.cluster_api import ApiError, Json, Patch
from laxity_k8s.objects.seal import Seal, clear_outputs, open_seal
from laxity_k8s.objects.status_annotation import (
    JobStatusRecord,
    read_status,
    read_verdict,
    verdict_text,
)
from laxity_scheduler.model.job import Promise
from laxity_scheduler.model.reasons import reason
from tests.support.machine import Machine
from tests.support.manifests import job

WHY = reason("fits", p90_at=60.0, slack_s=5.0, workers=2)
PROMISE = verdict_text(Promise(9.5, 1.5, 2.5, ((3.5, 2),), WHY))
SEAL = Seal(b"k" * 32)


def carrying(**said: str) -> Json:
    made = job(name="a")
    made["metadata"]["uid"] = "uid-a"
    made["metadata"]["annotations"] |= {f"laxity.dev/{key}": text for key, text in said.items()}
    return made


def after(made: Json, seal: Seal = SEAL, **said: str | None) -> Json:
    """The Job after laxity's patch of these annotations."""
    wished: dict[str, Any] = {f"laxity.dev/{key}": text for key, text in said.items()}
    patch = seal.seal_patch(Patch("jobs", "default/a", {"metadata": {"annotations": wished}}), made)
    changed: Json = json_tree.merge_patch(made, patch.body)
    return changed


def test_what_laxity_wrote_is_believed_after_each_of_its_patches() -> None:
    made = after(
        carrying(), verdict=PROMISE, status=JobStatusRecord(wanted=0).to_text(), reason="fits"
    )
    assert SEAL.believe_job(made) is made
    made = after(made, status=JobStatusRecord(wanted=2).to_text())
    assert SEAL.believe_job(made) is made
    assert read_verdict(made) is not None
    assert read_status(made).wanted == 2
    withdrawn = json_tree.merge_patch(made, {"metadata": {"annotations": {names.VERDICT: None}}})
    assert SEAL.believe_job(withdrawn) is withdrawn, "it asks again, and keeps its status"


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"verdict": PROMISE}, id="a promise"),
        pytest.param({"status": JobStatusRecord(queued_at=1.0).to_text()}, id="a place since 1970"),
        pytest.param({"mlflow-run": "deadbeef"}, id="somebody's MLflow run"),
        pytest.param({"stop": "{}", "nodes": "[]"}, id="a stop"),
        pytest.param({"verdict": PROMISE, "seal": "0.0"}, id="a made-up seal"),
        pytest.param({"verdict": PROMISE, "seal": "."}, id="an empty seal"),
    ],
)
def test_outputs_without_a_seal_are_dropped_all_together(forged: dict[str, str]) -> None:
    made = carrying(**forged, reason="mine", deadline="2h")
    seen = SEAL.believe_job(made)
    assert not set(names.OUTPUTS) & set(json_tree.annotations_of(seen))
    assert json_tree.annotations_of(seen)[names.DEADLINE] == "2h"
    assert "laxity.dev/reason" in json_tree.annotations_of(made), "the Job itself is not touched"


def test_a_seal_is_of_one_job_and_one_text() -> None:
    mine = after(carrying(), verdict=PROMISE, status=JobStatusRecord(wanted=0).to_text())
    other = {**mine, "metadata": {**mine["metadata"], "uid": "uid-b"}}
    notes = json_tree.annotations_of(mine) | {
        names.STATUS: JobStatusRecord(wanted=0, queued_at=1.0).to_text()
    }
    changed = {**mine, "metadata": {**mine["metadata"], "annotations": notes}}
    foreign = Seal(b"x" * 32).believe_job(mine)
    for seen in (SEAL.believe_job(other), SEAL.believe_job(changed), foreign):
        assert names.VERDICT not in json_tree.annotations_of(seen)


def test_the_note_of_a_new_leader_alone_is_no_forgery() -> None:
    noted = carrying(term="3", cycle="7")
    assert SEAL.believe_job(noted) is noted


def test_a_forged_job_is_cleared_by_one_patch() -> None:
    made = carrying(verdict=PROMISE, reason="mine", deadline="2h")
    made["metadata"]["labels"][names.VERDICT_LABEL] = "promised"
    clean = json_tree.merge_patch(made, clear_outputs(made).body)
    assert not set(names.OUTPUTS) & set(json_tree.annotations_of(clean))
    assert names.VERDICT_LABEL not in json_tree.labels_of(clean)
    assert SEAL.believe_job(clean) is clean


class Secrets:
    """Secrets of one namespace. `lost` makes the first creation lose to another replica."""

    def __init__(self, *, lost: bool = False) -> None:
        self.there: dict[str, Json] = {}
        self.lost = lost

    def read(self, name: str) -> Json:
        if name not in self.there:
            raise ApiError(name, status=404)
        return self.there[name]

    def create(self, body: Json) -> Json:
        if self.lost:
            self.lost = False
            theirs = {"data": {"key": base64.b64encode(b"t" * 32).decode()}}
            self.there[body["metadata"]["name"]] = theirs
            raise ApiError("exists", status=409)
        self.there[body["metadata"]["name"]] = body
        return body


def test_replicas_share_one_key_which_outlives_them() -> None:
    there = Secrets()
    first = open_seal(there.read, there.create, namespace="laxity")
    second = open_seal(there.read, there.create, namespace="laxity")
    assert (first.is_new, second.is_new, first.key) == (True, False, second.key)


def test_of_two_replicas_that_make_the_key_the_first_counts() -> None:
    there = Secrets(lost=True)
    found = open_seal(there.read, there.create, namespace="laxity")
    assert found == Seal(b"t" * 32)


def test_a_secret_that_may_not_be_read_is_told_with_what_to_apply() -> None:
    def read(name: str) -> Json:
        raise ApiError("forbidden", status=403)

    with pytest.raises(ApiError, match=r"laxity/laxity-seal .* rbac\.yaml"):
        open_seal(read, Secrets().create, namespace="laxity")


def test_a_known_promise_is_sealed_anew_though_its_status_is_written_meanwhile(
    machine: Machine,
) -> None:
    machine.api.create("jobs", after(job(name="a"), verdict=PROMISE))
    status_writes = iter(range(1, 4))

    def knows(shown: Json) -> bool:
        """Each time the Job is looked at, its controller writes before the seal is."""
        if number := next(status_writes, 0):
            body = {"status": {"failed": number}}
            machine.api.patch(Patch("jobs", "default/a", body, subresource="status"))
        return json_tree.annotations_of(shown)[names.VERDICT] == PROMISE

    new = Seal(b"n" * 32, is_new=True)
    (sealed,) = reseal_jobs(machine.api, new, knows)
    assert new.believe_job(sealed) is sealed
    assert machine.api.get("jobs", "default/a")["metadata"] == sealed["metadata"]


def test_a_promise_that_the_store_does_not_know_gets_no_new_seal(machine: Machine) -> None:
    machine.api.create("jobs", after(job(name="a"), verdict=PROMISE))
    assert list(reseal_jobs(machine.api, Seal(b"n" * 32), lambda _: False)) == []
