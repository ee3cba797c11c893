"""One key, one training: no order of ends and questions loses its epochs or its first submission."""

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from laxity import json_tree, names
from laxity_k8s.cluster_api import Json
from laxity_k8s.local.local_cluster import LocalCluster
from laxity_k8s.objects.attempts import attempt_number, origin_of
from laxity_scheduler.live import DuplicateJobError
from tests.support.key_walk import AMENDED, KeyWalk
from tests.support.waiting import Eyes

pytestmark = pytest.mark.slow

EPOCHS = 8


@dataclass(frozen=True)
class Attempt:
    """What a user knows of an attempt; `origin` is the Job whose folder it trains in."""

    uid: str
    number: int
    declared: int
    first_deadline: str
    deadline: str
    origin: str
    epochs: int
    state: str = "live"
    trained: bool = False


class Key(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="key-"))
        self.api = LocalCluster(self.home, {"a": 1})
        self.eyes = Eyes(self.api)
        self.walk = KeyWalk(self.api, self.eyes)
        self.attempts: list[Attempt] = []
        self.first_at = ""
        self.jobs: dict[str, Json] = {}

    def teardown(self) -> None:
        if hasattr(self, "home"):
            self.eyes.__exit__(None, None, None)
            self.api.close()
            shutil.rmtree(self.home)

    @rule(
        deadline=st.sampled_from(["1h", "1h", "2h"]),
        declared=st.sampled_from([EPOCHS, EPOCHS, EPOCHS, 9]),
        fresh=st.sampled_from([False, False, False, True]),
        name=st.sampled_from(["train", "renamed"]),
    )
    def submit(self, deadline: str, declared: int, fresh: bool, name: str) -> None:
        expected = self.answer(deadline, declared, fresh=fresh)
        asked: dict[str, Any] = {"deadline": deadline, "epochs": declared, "fresh": fresh}
        if expected is None:
            with pytest.raises(DuplicateJobError, match="which is another declaration"):
                self.walk.submit(name=name, **asked)
            return
        job = self.walk.submit(name=name, **asked)
        uid = json_tree.uid_of(job)
        notes = json_tree.annotations_of(job)
        if not self.attempts:
            self.first_at = notes[names.SUBMITTED_AT]
        if expected.uid:
            assert uid == expected.uid
            return
        assert uid not in {attempt.uid for attempt in self.attempts}
        new = replace(expected, uid=uid, origin=expected.origin or uid)
        assert (attempt_number(job), notes[names.DEADLINE]) == (new.number, new.deadline)
        began = origin_of(job)
        assert (began.uid, began.epochs) == (new.origin, new.epochs)
        if self.is_("refused"):
            self.attempts.pop()
        self.attempts.append(new)
        self.jobs[uid] = job

    def answer(self, deadline: str, declared: int, *, fresh: bool) -> Attempt | None:
        """The attempt that the key is answered with, without uid if it is new; None: an error."""
        new = Attempt("", 1, declared, deadline, deadline, "", 0)
        if not self.attempts:
            return new
        latest = self.attempts[-1]
        same = declared == latest.declared
        if latest.state == "finished":
            return latest if same else None
        if latest.state == "live":
            return latest if same and deadline in (latest.deadline, latest.first_deadline) else None
        if deadline == latest.first_deadline:
            new = replace(new, deadline=latest.deadline)
        new = replace(new, number=latest.number + (latest.state == "failed"))
        before = [row for row in self.attempts if row.trained or row.state == "failed"]
        if fresh or not before:
            return new
        if before[-1].declared != declared:
            return None
        return replace(new, origin=before[-1].origin, epochs=before[-1].epochs, trained=True)

    def change(self, **fields: Any) -> Json:
        latest = self.attempts[-1]
        self.attempts[-1] = replace(latest, **fields)
        return self.jobs[latest.uid]

    def is_(self, *states: str) -> bool:
        return bool(self.attempts) and self.attempts[-1].state in states

    @precondition(lambda self: self.is_("live"))
    @rule(epochs=st.integers(0, 3))
    def train(self, epochs: int) -> None:
        done = min(EPOCHS, self.attempts[-1].epochs + epochs)
        job = self.change(epochs=done, trained=True)
        self.walk.start(job)
        self.walk.train(job, done)

    @precondition(lambda self: self.is_("live"))
    @rule()
    def refuse(self) -> None:
        self.walk.refuse(self.change(state="refused"))

    @precondition(lambda self: self.is_("live", "refused"))
    @rule()
    def amend(self) -> None:
        self.walk.amend(self.change(state="live", deadline=AMENDED))

    @precondition(lambda self: self.is_("live", "refused"))
    @rule()
    def fail(self) -> None:
        self.walk.fail(self.change(state="failed"))

    @precondition(lambda self: self.is_("live"))
    @rule()
    def finish(self) -> None:
        self.walk.finish(self.change(state="finished"))

    @precondition(lambda self: self.is_("live", "refused"))
    @rule()
    def cancel(self) -> None:
        self.walk.cancel(self.change(state="cancelled"))

    @precondition(lambda self: self.is_("live", "refused"))
    @rule()
    def delete(self) -> None:
        """Not by laxity, which remembers nothing of it."""
        self.walk.delete(self.jobs[self.attempts.pop().uid])

    @precondition(lambda self: len(self.attempts) > 1)
    @rule()
    def collect(self) -> None:
        """The first attempt ended long ago: its Job is removed, and the service forgets it."""
        first = self.attempts.pop(0)
        if first.state == "cancelled":
            self.walk.cancelled.pop(0)
        else:
            self.walk.delete(self.jobs[first.uid])

    @invariant()
    def all_attempts_are_there_and_count_from_the_first_submission(self) -> None:
        there = self.walk.jobs() if hasattr(self, "walk") else []
        if not there:
            return
        numbers = [row.number for row in self.attempts if row.state != "cancelled"]
        assert sorted(map(attempt_number, there)) == numbers
        assert {json_tree.annotations_of(job)[names.SUBMITTED_AT] for job in there} == {
            self.first_at
        }


Key.TestCase.settings = settings(
    settings.get_profile("default"), max_examples=60, stateful_step_count=25
)
TestKey = Key.TestCase
