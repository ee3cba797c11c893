"""`laxity train policy`: learn a scheduling policy from a teacher and from throughput tables."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from laxity.cli.exit_codes import FAILED, USAGE, CommandError
from laxity.cli.job_names import completing

TEACHER_NAMES = ("optimus", "drf")

TeacherOption = Annotated[
    str,
    typer.Option(
        help=f"Whom to imitate: {', '.join(TEACHER_NAMES)}.",
        autocompletion=completing(lambda: TEACHER_NAMES),
    ),
]
TablesOption = Annotated[Path, typer.Option(help="Folder of throughput tables, MODEL.csv.")]
OutOption = Annotated[Path, typer.Option(help="The file to write.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Of the worlds, and of the net.")]
UpdatesOption = Annotated[int, typer.Option(min=1, help="Batches of 256 choices.")]
WorldsOption = Annotated[
    int, typer.Option(min=1, help="Simulated worlds of each of 16 sizes and loads.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def policy(
    *,
    tables: TablesOption,
    out: OutOption,
    teacher: TeacherOption = "optimus",
    seed: SeedOption = 1,
    updates: UpdatesOption = 1_500,
    worlds: WorldsOption = 2,
    json_: JsonOption = False,
) -> None:
    """Learn a policy in simulated clusters; `--policy learned:FILE` schedules by it."""
    from laxity_scheduler.learned.weights_file import TrainedPolicy, save_policy
    from laxity_scheduler.policy_training.imitation import learn_from_teacher

    known = read_tables(tables)
    if teacher not in TEACHER_NAMES:
        message = f"unknown teacher {teacher!r}: one of {', '.join(TEACHER_NAMES)}"
        raise CommandError(message, code=USAGE)
    with typer.progressbar(length=updates, label=f"imitating {teacher}", file=sys.stderr) as bar:
        learned = learn_from_teacher(
            known, teacher, seed=seed, updates=updates, worlds=worlds, tell=bar.update
        )
    about = {"teacher": teacher, "seed": seed, "tables": tables.name, "choices": learned.choices}
    try:
        save_policy(TrainedPolicy(learned.net, about), out)
    except OSError as error:
        raise CommandError(f"{out}: {error.strerror or error}", code=FAILED) from error
    figures = {"choices": learned.choices, "right_on_worlds_held_out": learned.right}
    lines = [f"{name:<26} {value:>12,.4g}" for name, value in figures.items()]
    typer.echo(json.dumps(figures) if json_ else "\n".join(lines))


def read_tables(folder: Path) -> Any:
    """CommandError if it holds none that can be used."""
    from laxity_scheduler.simulate.tables import TableError, load_tables
    from laxity_scheduler.simulate.trace_lookup import resolve

    try:
        return load_tables(resolve(folder))
    except TableError as error:
        raise CommandError(str(error), code=USAGE) from error
