"""`python -m studies [NAME]`: make the rows behind a claim, in a folder, one by one.

It works in a clone after `make setup`, which puts notebooks/ on the path of .venv.
"""

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from laxity.cli.exit_codes import FAILED, USAGE, run_app

if TYPE_CHECKING:
    from studies.study import TrialResult
    from studies.study_rows import Trial

OUT: Final = Path(".laxity/studies")


def study(
    name: Annotated[str, typer.Argument(help="A study; without one they are listed.")] = "",
    *,
    out: Annotated[Path, typer.Option(help="Folder for NAME.csv and NAME.json.")] = OUT,
    samples: Annotated[
        bool, typer.Option("--samples", help="In small, on the traces that ship.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="So many seeds, from 0 on.")] = 5,
    where: Annotated[
        list[str] | None,
        typer.Option(help="LABEL=VALUE: only these rows, such as trace=01; repeat."),
    ] = None,
    processes: Annotated[int, typer.Option(help="Trials side by side.")] = 1,
) -> None:
    """Make a study's rows; those that the folder has are not computed again."""
    from laxity_lab.traces.limits import whole
    from laxity_lab.traces.traces import TraceError
    from studies.datasets import open_datasets
    from studies.study import STUDIES, run_study

    if name not in STUDIES:
        _list_studies(name)
    try:
        whole("--seeds", [seeds])
        whole("--processes", [processes])
        problems = run_study(
            STUDIES[name],
            open_datasets(samples=samples),
            range(seeds),
            out,
            processes=processes,
            selects=_label_filter(where or []),
            on_result=_print_result,
        )
    except OSError as problem:
        typer.echo(f"studies: {problem.filename}: {problem.strerror}", err=True)
        raise typer.Exit(FAILED) from problem
    except (TraceError, ValueError) as problem:
        typer.echo(f"studies: {problem}", err=True)
        raise typer.Exit(USAGE) from problem
    typer.echo(f"{out / name}.csv, {out / name}.json")
    for line in problems:
        typer.echo(f"no row for {line}", err=True)
    if problems:
        raise typer.Exit(FAILED)


def _list_studies(unknown: str) -> NoReturn:
    """The studies that there are; with a name that is none of them, on stderr."""
    from studies.study import STUDIES

    if unknown:
        near = get_close_matches(unknown, STUDIES, n=1)
        suggestion = f"; did you mean {near[0]}?" if near else ""
        typer.echo(f"studies: no study {unknown!r} among these{suggestion}", err=True)
    for entry in STUDIES.values():
        typer.echo(f"{entry.name:<12} {entry.asks}", err=bool(unknown))
    raise typer.Exit(USAGE if unknown else 0)


def _print_result(done: int, trial_count: int, result: "TrialResult") -> None:
    trial, row, problem = result
    met = "" if row is None else row.get("deadline_met_ratio")
    outcome = problem or ("" if met is None else f"met {met:.3f}" if met != "" else "")
    label = " ".join(str(cell) for cell in trial.labels.values() if cell is not None)
    typer.echo(f"[{done}/{trial_count}] {label}  {outcome}", err=True)


def _label_filter(conditions: list[str]) -> Callable[["Trial"], bool]:
    """Whether a trial has all these labels. ValueError if one of them is none."""
    from studies.study_rows import LABELS, cell_text

    values_by_label: dict[str, set[str]] = {}
    for condition in conditions:
        label, sign, value = condition.partition("=")
        if not sign or label not in LABELS:
            raise ValueError(
                f"--where takes LABEL=VALUE with one of {', '.join(LABELS)}, not {condition!r}"
            )
        values_by_label.setdefault(label, set()).add(value)
    return lambda trial: all(
        cell_text(trial.labels.get(label)) in values for label, values in values_by_label.items()
    )


def main() -> NoReturn:
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False)
    app.command()(study)
    run_app(partial(app, prog_name="python -m studies"))


if __name__ == "__main__":
    main()
