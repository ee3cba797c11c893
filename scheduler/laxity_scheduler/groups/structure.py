"""The steps of a group, who comes after whom, and what is wrong with them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from laxity.job.qos import QoSError, check_whole
from laxity.job.spec import LONGEST_NAME, dns_label

MOST_STEPS: Final = 100
MOST_JOBS: Final = 10_000  # of one step


@dataclass(frozen=True, slots=True)
class GroupStep:
    """`count` jobs side by side, which start when all jobs of the steps `after` have finished.

    `manifest` is a Job as its jobs will be, for predictions; None: not known yet. `gap_s` is the time
    between the last end before it and its start.
    """

    name: str
    count: int = 1
    after: tuple[str, ...] = ()
    manifest: Mapping[str, Any] | None = field(default=None, compare=False)
    gap_s: float = 0.0

    def view(self) -> dict[str, Any]:
        """For people and programs: without the Job that it is predicted from."""
        return {
            "name": self.name, "count": self.count, "after": list(self.after), "gap_s": self.gap_s
        }  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return self.view() | {"manifest": self.manifest}


def read_steps(rows: Any) -> tuple[GroupStep, ...]:
    """The steps that a client sends, each after those that it names. QoSError names the wrong one."""
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise QoSError("steps", "write a list of steps, each with a name")
    if len(rows) > MOST_STEPS:
        raise QoSError("steps", f"{len(rows)} steps; at most {MOST_STEPS} are allowed")
    steps = tuple(_read_step(row) for row in rows)
    order_steps(steps)
    return steps


def _read_step(row: Mapping[str, Any]) -> GroupStep:
    name, after, manifest = row.get("name"), row.get("after") or [], row.get("manifest")
    if not isinstance(name, str) or not name or dns_label(name) != name:
        what = f"{name!r:.80} is no DNS label: 1 to {LONGEST_NAME} of a-z, 0-9 and '-'"
        raise QoSError("step", what)
    if not isinstance(after, list) or not all(isinstance(label, str) for label in after):
        raise QoSError("after", f"step {name}: write a list of names of steps")
    if manifest is not None and not isinstance(manifest, Mapping):
        raise QoSError("steps", f"step {name}: its manifest is no Job")
    count = check_whole("steps", row.get("count", 1), least=1, most=MOST_JOBS, what="jobs")
    return GroupStep(name, count, tuple(dict.fromkeys(after)), manifest)


def order_steps(steps: Sequence[GroupStep]) -> list[GroupStep]:
    """The steps, each behind those that it comes after. QoSError for a cycle or an unknown step."""
    by_name = {step.name: step for step in steps}
    for step in steps:
        if sum(other.name == step.name for other in steps) > 1:
            raise QoSError("steps", f"two steps are called {step.name}: give each its own name")
        for name in step.after:
            if name not in by_name:
                known = ", ".join(sorted(by_name))
                what = f"{step.name} comes after {name:.80}, which is no step; there are {known}"
                raise QoSError("after", what)
    try:
        order = TopologicalSorter({step.name: step.after for step in steps}).static_order()
        return [by_name[name] for name in order]
    except CycleError as error:
        circle = " after ".join(error.args[1])
        raise QoSError("after", f"{circle}: a circle, none of them could ever start") from None
