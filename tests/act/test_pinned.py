"""A Job that is created with a pin is told that nothing will be done about it."""

from laxity import names
from laxity_k8s.act.adoption import find_correction
from tests.support.manifests import CREATED_AT, job


def test_a_job_created_with_a_pin_is_told_once_why_it_waits() -> None:
    made = job(deadline="10m", pin="mine")
    said = find_correction(made, now=CREATED_AT)
    assert said is not None
    assert said.code == "pinned"
    notes = said.patch.body["metadata"]["annotations"]
    assert notes.keys() == {names.PIN, names.REASON, names.STATUS}, "a seal covers the status"
    assert notes[names.PIN] == "mine"
    made["metadata"]["annotations"] |= notes
    assert find_correction(made, now=CREATED_AT) is None
