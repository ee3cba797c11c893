"""The kinds of report lines: what worker 0 writes, and what the service takes."""

from typing import Final, Literal, get_args

ReportKind = Literal[
    "started",
    "formed",
    "resumed",
    "declared",
    "read",
    "epoch",
    "saved",
    "parked",
    "stopped",
    "finished",
    "failed",
]
REPORT_KINDS: Final[frozenset[str]] = frozenset(get_args(ReportKind))
