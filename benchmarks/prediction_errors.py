"""`python -m benchmarks prediction`: how far off predictions from four profiled runs are, table by table."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from benchmarks.held_out import Judgement

WIDE: Final = 140  # columns of a terminal that has room for all


def prediction(
    *,
    tables: Annotated[
        Path,
        typer.Option(
            help="Folder of tables (MODEL.csv: global_batch_size, then a column per GPU count, "
            "iterations per second), or one of them."
        ),
    ],
    gpus_per_node: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs of a node. [4 if the folder's name says T4, else 8]"),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    points: Annotated[
        Path | None, typer.Option(help="Write every held-out point to this file, as CSV.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Both tables for a document.")
    ] = False,
) -> None:
    """Errors of prediction from four profiled points per table, all others held out."""
    from benchmarks.held_out import beyond_a_node, judge_tables
    from benchmarks.held_out_tables import ThroughputTableError
    from benchmarks.report_tables import error_figures, points_csv, render_document
    from benchmarks.spread import coverage_left_out
    from benchmarks.tuning_split import (
        group_by_folder,
        group_by_model,
        judge_by_pull,
        judge_left_out,
    )
    from laxity.cli.exit_codes import USAGE, CommandError

    try:
        judged = judge_tables(tables, gpus_per_node=gpus_per_node)
        beyond = beyond_a_node(tables, gpus_per_node=gpus_per_node)
        pulled = judge_by_pull(tables, gpus_per_node=gpus_per_node)
    except ThroughputTableError as error:
        raise CommandError(str(error), code=USAGE) from error
    for name, reason in judged.skipped:
        typer.echo(f"{name} is passed over: {reason}", err=True)
    groups = {"model_left_out": group_by_model, "folder_left_out": group_by_folder}
    figures_by_name = error_figures(
        judged,
        beyond,
        {name: judge_left_out(pulled, group) for name, group in groups.items()},
        {name: coverage_left_out(judged.tables, group) for name, group in groups.items()},
    )
    if points is not None:
        points.write_text(points_csv(judged), encoding="utf-8")
    if json_:
        typer.echo(json.dumps(figures_by_name))
    elif markdown:
        typer.echo(render_document(judged, figures_by_name))
    else:
        _print_report(judged, figures_by_name)


def _print_report(judged: "Judgement", figures_by_name: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console

    console = Console()
    console.print(_error_table(judged, is_wide=console.width >= WIDE))
    for name, figure in figures_by_name.items():
        value = figure["value"]
        shown = f"{value:,.4f}" if isinstance(value, float) else str(value)
        typer.echo(f"{name:<26} {shown:>26} {figure['unit']}")


def _error_table(judged: "Judgement", *, is_wide: bool) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from benchmarks.report_tables import COLUMNS, ONLY_WIDE, table_cells

    table = Table(title="Held-out points, predicted from four", title_justify="left")
    table.box, table.collapse_padding, table.pad_edge = SIMPLE_HEAD, True, False
    shown = [
        column_index
        for column_index, column in enumerate(COLUMNS)
        if is_wide or column not in ONLY_WIDE
    ]
    for column_index in shown:
        table.add_column(
            COLUMNS[column_index], justify="right" if column_index else "left", no_wrap=True
        )
    for result in judged.tables:
        row = table_cells(result)
        table.add_row(*(row[column_index] for column_index in shown))
    return table
