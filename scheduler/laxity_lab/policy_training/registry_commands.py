"""`laxity train promote` and `versions`: which version is in use; what MLflow's pages say of it."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from laxity.cli.exit_codes import AWAY, NOT_FOUND, CommandError
from laxity.human_time import count_noun

NameArgument = Annotated[str, typer.Argument(help="The registered model.")]
StoreOption = Annotated[
    str,
    typer.Option(
        "--tracking-uri", envvar="MLFLOW_TRACKING_URI", help="MLflow store. [HOME/mlflow.db]"
    ),
]


def promote(
    name: NameArgument,
    version: Annotated[str, typer.Argument(help="The version; an earlier one rolls back.")],
    *,
    alias: Annotated[str, typer.Option(help="The alias that is to name it.")] = "champion",
    tracking_uri: StoreOption = "",
) -> None:
    """Put a registered version in use: a service with --policy models:/NAME@ALIAS follows."""
    from laxity_profiler.registry.registered_files import move_alias

    with _exit_codes():
        move_alias(tracking_store(tracking_uri), name, alias, version)
    typer.echo(f"{name} version {version} is the {alias}")


def versions(
    name: NameArgument,
    *,
    tracking_uri: StoreOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="JSON for machines.")] = False,
) -> None:
    """List the versions of a registered model: figures, and which alias names which."""
    from laxity_profiler.registry.registered_files import list_versions

    with _exit_codes():
        there = list_versions(tracking_store(tracking_uri), name)
    rows: list[dict[str, Any]] = [
        {"version": each.version, "aliases": list(each.aliases), "figures": dict(each.metrics)}
        for each in there
    ]
    typer.echo(json.dumps(rows) if as_json else "\n".join(map(_version_line, rows)))


def tracking_store(tracking_uri: str) -> str:
    """The user's MLflow, else the home's; it says nothing on the way."""
    from laxity.api.client import home_folder
    from laxity_profiler.cli.refit_command import MLFLOW_ENV

    for name, value in MLFLOW_ENV.items():
        os.environ.setdefault(name, value)
    return tracking_uri or f"sqlite:///{home_folder() / 'mlflow.db'}"


@contextmanager
def _exit_codes() -> Iterator[None]:
    """What MLflow lacks, and an MLflow that does not answer, end the command each with its code."""
    from laxity_profiler.registry.mlflow_errors import MlflowAwayError, NotInMlflowError

    try:
        yield
    except MlflowAwayError as error:
        code = NOT_FOUND if isinstance(error, NotInMlflowError) else AWAY
        raise CommandError(str(error), code=code) from error


def _version_line(row: dict[str, Any]) -> str:
    figures = ", ".join(f"{name} {value:.4g}" for name, value in sorted(row["figures"].items()))
    return f"{row['version']:>4}  {', '.join(row['aliases']) or '-':<20}  {figures}"


def describe_model(name: str) -> str:
    """What the registered model is, and what to do with its versions."""
    return (
        "A scheduling policy of laxity: how many workers each job gets.\n\n"
        f"- decide by the champion: `laxity up --policy models:/{name}@champion`\n"
        f"- what the newest would have gained: `laxity replay --gain --policy models:/{name}@challenger`\n"
        f"- compare versions: `laxity train versions {name}`\n"
        f"- promote a version, or roll back to one: `laxity train promote {name} VERSION`\n\n"
        "While a version decides, the service compares it with its teacher. Where it earns less, the "
        "teacher decides (docs/concepts/learned.md)."
    )


def describe_version(
    name: str, version: str, about: Mapping[str, Any], figures: Mapping[str, float]
) -> str:
    """What a version was trained on, how it does on what was held out, and how to promote it."""
    paragraphs = (
        " ".join(_origin_sentences(about, figures)),
        " ".join(_figure_sentences(figures)),
        f"To promote it: `laxity train promote {name} {version}`",
    )
    return "\n\n".join(filter(None, paragraphs))


def _origin_sentences(about: Mapping[str, Any], figures: Mapping[str, float]) -> Iterator[str]:
    """From which weights, whom it imitated on which data, how it got better; seed and teacher."""
    start = about.get("start")
    yield f"Trained on from {start}." if start else "Trained from random weights."
    if "tables" in about and "choices" in figures:
        yield f"It imitated {about['teacher']} in clusters simulated from the tables {about['tables']}."
    if "journal" in about:
        yield f"It imitated what decided in a service's journal, {about['journal']}."
    if about.get("improved_by", "none") != "none":
        data = f"the tables {about['tables']}" if "tables" in about else "the journal's own jobs"
        goal = {"jct": "completion times", "deadlines": "deadlines"}[about["reward"]]
        rounds = count_noun(int(figures["rounds"]), "round")
        yield f"Then {about['improved_by']} improved it for {goal}, {rounds} on {data}."
    yield f"Seed {about['seed']}."
    yield f"Its teacher, who decides where it is caught: {_name_teacher(about)}."


def _name_teacher(about: Mapping[str, Any]) -> str:
    """As the service chooses it: a net without a teacher is compared with Optimus."""
    from laxity_scheduler.service.learned_models import TEACHER

    teacher = about.get("teacher", TEACHER)
    return TEACHER if teacher == "none" else str(teacher)


def _figure_sentences(figures: Mapping[str, float]) -> Iterator[str]:
    """What was measured on worlds or cycles that it did not learn from."""
    if "right_on_worlds_held_out" in figures:
        right = figures["right_on_worlds_held_out"]
        yield f"On simulated worlds held out it chose as its teacher in {right:.1%} of the choices."
    for cost, words in (
        ("slowdown", "Completion times, to the run time at the width asked for"),
        ("missed", "Cost (deadlines missed, and 0.05 of completion times)"),
    ):
        if cost in figures:
            first = figures[f"{cost}_at_first"]
            yield f"{words}: {figures[cost]:.4g} on validation worlds, {first:.4g} before improvement."
    if "held_out_cycles" in figures:
        yield _journal_sentence(figures)


def _journal_sentence(figures: Mapping[str, float]) -> str:
    """On the last cycles of the journal, which it did not learn from."""
    cycles, differing = (int(figures[f"held_out_{name}"]) for name in ("cycles", "differing"))
    text = f"On the journal's last {count_noun(cycles, 'cycle')}, held out, it wants other widths in {differing}"
    if "held_out_right" in figures:
        choices = count_noun(int(figures["held_out_choices"]), "choice")
        text += f", and chooses as was decided in {figures['held_out_right']:.1%} of {choices}"
    if "held_out_gain" in figures:
        text += f"; its widths would have trained {1 + figures['held_out_gain']:.4g} times as much (predicted)"
    return f"{text}."
