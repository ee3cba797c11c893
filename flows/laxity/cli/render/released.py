"""What became of jobs that were let go, in words."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from laxity.human_time import count_noun

MOST_LISTED: Final = 20


def all_released(answer: Mapping[str, Any]) -> str:
    waiting = [str(job) for job in answer.get("suspended") or ()]
    message = f"released: {count_noun(int(answer.get('released') or 0), 'job')}"
    if not waiting:
        return message
    start = """kubectl patch job NAME --type merge -p '{"spec": {"suspend": false}}'"""
    verb = "stays" if len(waiting) == 1 else "stay"
    stay = f"{len(waiting)} of them {verb} suspended; on a cluster, start one with: {start}"
    return "\n".join([f"{message}; {stay}", *(f"  {name}" for name in _first_names(waiting))])


def describe_refusals(answer: Mapping[str, Any]) -> str:
    """What was not let go; "" if all was."""
    lines = []
    if jobs := answer.get("refused"):
        lines += [f"not released, and managed as before: {count_noun(len(jobs), 'job')}"]
        lines += _list_by_cause(jobs)
    if nodes := answer.get("nodes_refused"):
        lines += [f"not given back, and still labelled as lent: {count_noun(len(nodes), 'node')}"]
        lines += _list_by_cause(nodes)
    return "\n".join(lines)


def _list_by_cause(refused: Mapping[str, str]) -> list[str]:
    """Each cause once, after all that have it: in a namespace without rights all have the same."""
    names_by_cause: dict[str, list[str]] = {}
    for name, cause in sorted(refused.items()):
        names_by_cause.setdefault(cause, []).append(name)
    return [
        f"  {', '.join(_first_names(those))}: {cause}" for cause, those in names_by_cause.items()
    ]


def _first_names(names: Sequence[str]) -> list[str]:
    more = len(names) - MOST_LISTED
    return [*names[:MOST_LISTED], *([f"and {more} more"] if more > 0 else [])]
