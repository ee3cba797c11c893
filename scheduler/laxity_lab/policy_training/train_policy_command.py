"""`laxity train policy`: learn a scheduling policy from a teacher, throughput tables, or a journal."""

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from laxity.cli.exit_codes import AWAY, FAILED, USAGE, CommandError
from laxity.cli.job_names import completing
from laxity_lab.policy_training.journal_command import (
    imitate_journal,
    measure_on_journal,
    open_journal,
    read_journal_tables,
    read_start,
)
from laxity_lab.policy_training.registry_commands import tracking_store

TEACHER_NAMES = ("optimus", "drf")
WARM_UPS = (*TEACHER_NAMES, "none")
IMPROVEMENTS = ("evolution", "gradients", "none")
REWARD_NAMES = ("jct", "deadlines")

TeacherOption = Annotated[
    str,
    typer.Option(
        help=f"Whom to imitate first: {', '.join(WARM_UPS)}. [optimus; none, which is to start "
        "from random weights, with --tables and --improve gradients]",
        autocompletion=completing(lambda: WARM_UPS),
    ),
]
TablesOption = Annotated[
    Path | None, typer.Option(help="Folder of throughput tables, MODEL.csv, to simulate from.")
]
JournalOption = Annotated[
    str,
    typer.Option(
        envvar="LAXITY_JOURNAL",
        metavar="SOURCE",
        help="Imitate what decided in a service: its folder, or the URL of its store.",
    ),
]
StartOption = Annotated[
    str,
    typer.Option(
        metavar="POLICY", help="Train on from these weights: learned:FILE or models:/NAME@ALIAS."
    ),
]
OutOption = Annotated[Path, typer.Option(help="The file to write.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Of the worlds, and of the net.")]
UpdatesOption = Annotated[int, typer.Option(min=1, help="Batches of 256 choices.")]
WorldsOption = Annotated[
    int, typer.Option(min=1, help="Simulated worlds of each of 16 sizes and loads.")
]
ImproveOption = Annotated[
    str,
    typer.Option(
        help=f"How the net gets better than its teacher: {', '.join(IMPROVEMENTS)}. [evolution; "
        "none without --tables]",
        autocompletion=completing(lambda: IMPROVEMENTS),
    ),
]
RewardOption = Annotated[
    str,
    typer.Option(
        help=f"What improvement is about: {', '.join(REWARD_NAMES)}.",
        autocompletion=completing(lambda: REWARD_NAMES),
    ),
]
RoundsOption = Annotated[
    int, typer.Option(min=1, help="Steps of evolution, or episodes of policy gradients.")
]
RegisterOption = Annotated[
    str, typer.Option("--register", help="Also register it in MLflow under this name.")
]
AliasOption = Annotated[
    str,
    typer.Option(
        help="The alias that names it there; `laxity train promote` makes it the champion."
    ),
]
TrackingOption = Annotated[
    str, typer.Option(envvar="MLFLOW_TRACKING_URI", help="MLflow store. [HOME/mlflow.db]")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def policy(
    *,
    out: OutOption,
    tables: TablesOption = None,
    journal: JournalOption = "",
    start: StartOption = "",
    teacher: TeacherOption = "",
    seed: SeedOption = 1,
    updates: UpdatesOption = 1_500,
    worlds: WorldsOption = 2,
    improve: ImproveOption = "",
    reward: RewardOption = "jct",
    rounds: RoundsOption = 60,
    register_as: RegisterOption = "",
    alias: AliasOption = "challenger",
    tracking_uri: TrackingOption = "",
    json_: JsonOption = False,
) -> None:
    """Learn a policy from simulated clusters, or a service's journal; `learned:FILE` decides by it."""
    improve = improve or ("evolution" if tables else "none")
    teacher = teacher or ("none" if tables and improve == "gradients" else "optimus")
    check_options(teacher, improve, tables=tables, journal=journal)
    check_name("reward", reward, REWARD_NAMES)
    if journal or not start or improve == "gradients":
        import_module("laxity_lab.policy_training.torch_net")  # told before anything is read
    throughputs = None if tables is None else read_tables(tables)
    net, start = read_start(start, tracking_uri) if start else (None, "")
    about: dict[str, Any] = {"teacher": teacher, "seed": seed, "improved_by": improve}
    about |= {"start": start} if start else {}
    figures: dict[str, float] = {}
    if tables is not None:
        about["tables"] = tables.name
        if net is None:
            net, figures = make_start(
                throughputs, teacher, seed=seed, updates=updates, worlds=worlds
            )
    with open_journal(journal, tracking_uri) as source:
        if source is not None:
            net, more, about["journal"] = imitate_journal(source, net, seed=seed, updates=updates)
            figures |= more
        if improve != "none":
            throughputs = read_journal_tables(source) if throughputs is None else throughputs
            about["reward"] = reward
            kind = (improve, reward)
            net, more = improve_in_slots(throughputs, net, kind, seed=seed, rounds=rounds)
            figures |= more
        if source is not None:
            figures |= measure_on_journal(source, net, seed=seed)
    write_policy(net, about | figures, out)
    if register_as:
        version = register_policy(register_as, out, about, figures, (alias, tracking_uri))
        typer.echo(f"registered as {register_as} version {version}, the {alias}", err=True)
    lines = [f"{name:<26} {value:>12,.4g}" for name, value in figures.items()]
    typer.echo(json.dumps(figures) if json_ else "\n".join(lines))


def check_options(teacher: str, improve: str, *, tables: Path | None, journal: str) -> None:
    """CommandError if they do not go together."""
    if tables is None and not journal:
        raise CommandError("name --tables DIR to simulate from, or --journal HOME", code=USAGE)
    check_name("teacher", teacher, WARM_UPS)
    check_name("improvement", improve, IMPROVEMENTS)
    if teacher == improve == "none":
        message = "--teacher none --improve none would write random weights: choose one of them"
        raise CommandError(message, code=USAGE)


def check_name(kind: str, name: str, known: Sequence[str]) -> None:
    """CommandError if it is none of these."""
    if name not in known:
        message = f"unknown {kind} {name!r}: one of {', '.join(known)}"
        raise CommandError(message, code=USAGE)


def make_start(
    tables: Any, teacher: str, *, seed: int, updates: int, worlds: int
) -> tuple[Any, dict[str, float]]:
    """A net that imitates its teacher, with its figures, or one of random weights."""
    if teacher != "none":
        return imitate_teacher(tables, teacher, seed=seed, updates=updates, worlds=worlds)
    from laxity_lab.policy_training.torch_net import make_random_net

    return make_random_net(seed), {}


def imitate_teacher(
    tables: Any, teacher: str, *, seed: int, updates: int, worlds: int
) -> tuple[Any, dict[str, float]]:
    """A net and its figures, with progress on stderr."""
    from laxity_lab.policy_training.imitation import learn_from_teacher

    with typer.progressbar(length=updates, label=f"imitating {teacher}", file=sys.stderr) as bar:
        learned = learn_from_teacher(
            tables, teacher, seed=seed, updates=updates, worlds=worlds, tell=bar.update
        )
    return learned.net, {"choices": learned.choices, "right_on_worlds_held_out": learned.right}


def improve_in_slots(
    tables: Any, net: Any, kind: tuple[str, Any], *, seed: int, rounds: int
) -> tuple[Any, dict[str, float]]:
    """The best net on validation seeds, and the costs there; `kind`: how, and by which reward.

    Progress on stderr.
    """
    way, reward = kind
    from laxity_lab.policy_training.evolution import evolve
    from laxity_lab.policy_training.reinforcement import reinforce

    improve = evolve if way == "evolution" else reinforce
    with typer.progressbar(length=rounds, label=way, file=sys.stderr) as bar:
        best, tried, _ = improve(
            tables, net, seed=seed, rounds=rounds, reward=reward, tell=bar.update
        )
    cost = "slowdown" if reward == "jct" else "missed"
    return best, {"rounds": rounds, f"{cost}_at_first": tried[0], cost: min(tried)}


def write_policy(net: Any, about: dict[str, Any], out: Path) -> None:
    """CommandError if that fails."""
    from laxity_scheduler.learned.weights_file import TrainedPolicy, save_policy

    try:
        save_policy(TrainedPolicy(net, about), out)
    except OSError as error:
        raise CommandError(f"{out}: {error.strerror or error}", code=FAILED) from error


def register_policy(
    name: str,
    out: Path,
    about: dict[str, Any],
    figures: dict[str, float],
    place: tuple[str, str],
) -> str:
    """The version in MLflow; `place` is the alias and the store. CommandError if MLflow fails."""
    from laxity_lab.policy_training.registry_commands import describe_model, describe_version
    from laxity_profiler.registry.mlflow_errors import MlflowAwayError
    from laxity_profiler.registry.registered_files import ModelFile, register_file

    alias, uri = place

    def describe(version: str) -> str:
        return describe_version(name, version, about, figures)

    file = ModelFile(name, out, describe_model(name), about, figures, alias, describe)
    try:
        return register_file(tracking_store(uri), file).version
    except MlflowAwayError as error:
        raise CommandError(str(error), code=AWAY) from error


def read_tables(folder: Path) -> Any:
    """CommandError if it holds none that can be used."""
    from laxity_lab.traces.throughput_tables import TableError, load_tables
    from laxity_lab.traces.trace_lookup import resolve

    try:
        return load_tables(resolve(folder))
    except TableError as error:
        raise CommandError(str(error), code=USAGE) from error
