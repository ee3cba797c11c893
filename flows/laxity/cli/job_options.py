"""The arguments and options that several commands of jobs share."""

from typing import Annotated, Final

import typer

from laxity.cli.job_names import complete_job, completing

JOB_HELP: Final = "namespace/name, name, or a beginning that only one job has."
JobId = Annotated[str, typer.Argument(metavar="JOB", help=JOB_HELP, autocompletion=complete_job)]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for machines.")]
Source = Annotated[
    str,
    typer.Argument(
        metavar="FILE|ENTRY", help="YAML or JSON of a Job, - for stdin, or module:function."
    ),
]
Deadline = Annotated[
    str | None,
    typer.Option(help="20m or 2h30m from submission, 06:00, Fri 18:00, or 2026-11-21T18:00Z."),
]
ServiceClass = Annotated[
    str | None,
    typer.Option(
        "--class",
        help="hard, soft or best_effort.",
        autocompletion=completing(lambda: ("hard", "soft", "best_effort")),
    ),
]
Workers = Annotated[str | None, typer.Option(help="Allowed widths: 3, 1,2,4 or 1..4.")]
Epochs = Annotated[int | None, typer.Option(help="Epochs to train.", min=1)]
Model = Annotated[
    str | None,
    typer.Option(
        help="Name under which the history of its runs is kept. [that of the function or Job]"
    ),
]
Estimate = Annotated[str | None, typer.Option(help="One epoch on one worker takes so long: 90s.")]
WallLimit = Annotated[
    str | None,
    typer.Option(
        help="Longest run of one start, such as 48h; then the training goes on in another."
    ),
]
Launcher = Annotated[
    str | None,
    typer.Option(
        help="torch: workers get RANK, WORLD_SIZE and MASTER_ADDR, as from torchrun.",
        autocompletion=completing(lambda: ("torch",)),
    ),
]
Name = Annotated[str | None, typer.Option(help="Name of the Job.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace of the Job.")]
Params = Annotated[
    list[str] | None, typer.Option("--param", "-p", help="KEY=VALUE for the function; repeatable.")
]
PassEnv = Annotated[
    list[str] | None,
    typer.Option(help="Name of a variable, or FOO_*, that workers get too; repeatable."),
]
Key = Annotated[
    str | None, typer.Option(help="Idempotency key: the same key attaches to the same job.")
]
Restarts = Annotated[
    int | None,
    typer.Option(
        help="Starts in a row that may fail before the next epoch ends; 0: fail at once. [3]", min=0
    ),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="After a failure, begin at the first epoch again.")
]
Freeze = Annotated[
    bool,
    typer.Option("--freeze", help="Run from a copy of the code, made now (not with an image)."),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow", "-f", help="Follow the job to its end; the exit code says how it ended."
    ),
]
Timeout = Annotated[
    str | None, typer.Option(help="With --follow: stop following after 2h; the job goes on.")
]
# --- of a script ---
Command = Annotated[
    list[str], typer.Argument(metavar="-- COMMAND", help="The script, with its arguments.")
]
RunEstimate = Annotated[
    str | None, typer.Option("--estimate", help="The whole script takes so long: 2h.")
]
Resumes = Annotated[
    bool, typer.Option("--resumes", help="After a stop the script goes on from its own checkpoint.")
]
ResumeArgs = Annotated[
    str | None, typer.Option(help="Arguments that a start after a stop gets, too; with --resumes.")
]
Grace = Annotated[int, typer.Option(help="Seconds that the script has after SIGTERM.", min=1)]
Image = Annotated[
    str | None, typer.Option(help="On a cluster: the image that holds the script and laxity.")
]
FollowToEnd = Annotated[
    bool, typer.Option("--follow/--no-follow", help="Follow the job to its end.")
]
