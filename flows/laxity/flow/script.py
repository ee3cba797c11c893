"""A script as a training: the declaration of its Job, and the same as a Prefect flow.

The job declares 100 epochs of one per cent each. A per cent needs no knowledge of the script, is the
same in all of its runs, and is fine enough for a forecast: of 6 hours it lasts 4 minutes. A script
whose last run posted no progress declares one epoch: the whole run.
"""

import hashlib
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import PurePath
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, cast

from laxity.durations import parse_duration
from laxity.flow.declaration import Declaration
from laxity.flow.decorator import deadline_flow
from laxity.job.qos import QoSError
from laxity.worker.progress.progress_posts import UNITS
from laxity.worker.script import run_script

if TYPE_CHECKING:
    from laxity.flow.prefect_flow import DeadlineFlow

_MODULE: Final = re.compile(r"[A-Za-z_][\w.]*")  # and not the number of another program's -m
_RUNS_LINES: Final = re.compile(r"(?:sh|python[\d.]*)$")  # by -c; to others it may be a file
MARGIN_S: Final = 5  # of a pod's grace, for the reports after the script has ended


@dataclass(frozen=True, slots=True)
class Script:
    """A command, and how it is stopped: `resumes` says that it goes on from a checkpoint of its own.

    `resume_args` are appended once an earlier start has trained something.
    """

    command: Sequence[str]
    resumes: bool = False
    resume_args: Sequence[str] = ()
    grace_s: int = 30

    @property
    def title(self) -> str:
        """What a job of this script is called, and its history: its file, module, line or program.

        Two lines of a shell have nothing in common: each has a name of its own.
        """
        program, runs_lines = PurePath(self.command[0]).name, False
        for before, word in pairwise(("", *self.command)):
            runs_lines |= bool(_RUNS_LINES.search(before))
            if before == "-m" and _MODULE.fullmatch(word):
                return word
            if before == "-c" and runs_lines:
                return f"{program}-{hashlib.sha256(word.encode()).hexdigest()[:8]}"
            if word.endswith((".py", ".sh")):
                return PurePath(word).stem
        return program

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of `run_script`."""
        return {
            "command": list(self.command),
            "resume_args": list(self.resume_args),
            "grace_s": self.grace_s,
        }

    def options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Those of `deadline_flow` with what a script adds; `epoch_estimate` is of the whole run.

        QoSError for several workers that would each run the script alone, or lose all at a change.
        """
        workers = str(options.get("workers", 1))
        if workers != "1" and not options.get("launcher"):
            raise QoSError("workers", 'more than one need launcher="torch": each runs the script')
        if not (workers.isdecimal() or self.resumes):
            raise QoSError("workers", "a change of their number is a new start: declare resumes")
        epochs = int(options.get("epochs", UNITS))
        template = {"terminationGracePeriodSeconds": self.grace_s + MARGIN_S}
        whole = options.get("epoch_estimate")
        return {
            **options,
            "epochs": epochs,
            "epoch_estimate": whole and _part_of(whole, epochs),
            "resumes": self.resumes,
            "preemptible": self.resumes,
            "template": template | dict(options.get("template") or {}),
        }


def declare_script(script: Script, name: str | None, options: Mapping[str, Any]) -> Declaration:
    """The declaration of its job; QoSError for anything that cannot be meant."""
    title = name or script.title
    return Declaration.of(title, {"model": title, **script.options({"workers": 1, **options})})


def deadline_script(
    command: str | Sequence[str],
    *,
    deadline: str | None = None,
    name: str | None = None,
    resumes: bool = False,
    resume_args: Sequence[str] = (),
    grace_s: int = 30,
    **options: Any,
) -> "DeadlineFlow[..., dict[str, Any]]":
    """A Prefect flow that runs this script under a deadline, as `laxity run` does.

    `command` is a list of words, or a text as a shell splits it; a file.py runs with this Python.
    `options` are those of `deadline_flow`; `epoch_estimate` is that of the whole script.
    """
    words = shlex.split(command) if isinstance(command, str) else list(command)
    if not words:
        raise QoSError("command", "is empty; write for example 'train.py --epochs 3'")
    if words[0].endswith(".py"):
        words = ["python" if options.get("image") else sys.executable, *words]
    script = Script(words, resumes or bool(resume_args), resume_args, grace_s)
    function = FunctionType(
        run_script.__code__,
        run_script.__globals__,
        run_script.__name__,
        tuple(script.arguments.values()),
    )
    function.__module__, function.__annotations__ = (
        run_script.__module__,
        run_script.__annotations__,
    )
    title = name or script.title
    options = script.options(options) | {"model": options.get("model") or title}
    flow = deadline_flow(deadline=deadline, name=title, **options)
    return cast("DeadlineFlow[..., dict[str, Any]]", flow(cast("Any", function)))


def _part_of(whole: object, epochs: int) -> timedelta:
    return (whole if isinstance(whole, timedelta) else parse_duration(str(whole))) / epochs
