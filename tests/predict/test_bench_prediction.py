"""`python -m benchmarks prediction` judges any folder of tables on what four runs did not see."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from benchmarks.__main__ import benches
from benchmarks.held_out import beyond_a_node, judge_tables, node_gpus
from benchmarks.held_out_tables import ThroughputTableError, read_table
from benchmarks.report_tables import table_cells
from benchmarks.spread import coverage_left_out, learn_spread
from benchmarks.tuning_split import (
    group_by_folder,
    group_by_model,
    judge_by_pull,
    judge_left_out,
)
from laxity.cli.exit_codes import CommandError
from laxity_profiler.model.scaling import SPREAD
from tests.support.command_line import invoke
from tests.support.throughput import step_s, write_table

TRACES = os.environ.get("LAXITY_TRACES", "")


def bench(where: Path, *words: str) -> Result:
    return invoke(["prediction", "--tables", str(where), *words], benches)


def test_the_figures_are_named_values_with_units(tmp_path: Path) -> None:
    write_table(tmp_path / "cnn.csv")
    write_table(tmp_path / "wild.csv", seconds=lambda b, w: step_s(b, w) * (3.0 if w == 4 else 1.0))

    shown = bench(tmp_path, "--json")

    figures = json.loads(shown.stdout)
    assert all(set(figure) == {"value", "unit"} for figure in figures.values())
    assert figures["median_ape"]["value"] < 0.05
    assert figures["models_under_10pct"] == {"value": 0.5, "unit": "share of models"}
    assert 0.5 < figures["p90_coverage"]["value"] < 1.0
    assert figures["worst_model"]["value"].endswith("/wild")
    assert figures["worst_model_mape"]["value"] > 0.1
    assert figures["held_out"]["value"] == 2 * (21 - 4)


def test_a_person_sees_every_model(tmp_path: Path) -> None:
    write_table(tmp_path / "T4" / "cnn.csv")
    write_table(tmp_path / "T4" / "rnn.csv")

    shown = bench(tmp_path).stdout

    assert "T4/cnn" in shown
    assert "T4/rnn" in shown
    assert "models_under_10pct" in shown
    assert bench(tmp_path, "--markdown").stdout.count("\n| T4/") == 2


def test_all_points_but_the_four_are_held_out(tmp_path: Path) -> None:
    write_table(tmp_path / "cnn.csv")

    (table,) = judge_tables(tmp_path).tables

    assert len(table.profiled) == 4
    assert not set(table.profiled).intersection((held.batch, held.gpus) for held in table.held)
    assert len(table.held) == 21 - 4
    assert table_cells(table)[6] == f"{table.covered}/17"


def test_the_choice_of_the_four_does_not_look_at_the_speeds(tmp_path: Path) -> None:
    write_table(tmp_path / "a.csv")
    write_table(tmp_path / "b.csv", seconds=lambda b, w: 1.0 + math.sin(b * w))

    first, second = judge_tables(tmp_path).tables

    assert first.profiled == second.profiled


@pytest.mark.parametrize(
    ("text", "points"),
    [
        pytest.param(
            "global_batch_size,1,2,4\n32,1.5,,nan\n64,0,2.5,0.0",
            [(32, 1), (64, 2)],
            id="zero, blank and nan are no speeds",
        ),
        pytest.param(
            "\ufeffglobal_batch_size , 1 ,2\r\n 32, 1.5 , 2\r\n\r\n",
            [(32, 1), (32, 2)],
            id="a spreadsheet wrote it",
        ),
        pytest.param(
            "global_batch_size,1,2,4\n32,1.5\n64,1,2", [(32, 1), (64, 1), (64, 2)], id="short lines"
        ),
        pytest.param("global_batch_size,1\n", [], id="no line"),
    ],
)
def test_what_was_not_measured_is_left_out(
    text: str, points: list[tuple[int, int]], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")

    assert list(read_table(tmp_path / "t.csv")) == points


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("global_batch_size,1,2\n32,1,fast", r"line 2, column 3 \(2 GPUs\): 'fast' is no number", id="a word"),
        pytest.param("global_batch_size,1,2\n32,1,-2", r"line 2, column 3 \(2 GPUs\): '-2' iterations", id="negative"),
        pytest.param("global_batch_size,1\n32,inf", r"line 2, column 2 \(1 GPUs\): 'inf'", id="infinite"),
        pytest.param("global_batch_size,1\n32,1e-320", "column 2", id="too slow for a float"),
        pytest.param("global_batch_size,1\n32.5,1", r"line 2, column 1 \(global_batch_size\): '32.5' is no whole", id="half a sample"),
        pytest.param("global_batch_size,1\n0,1", "line 2, column 1", id="no sample"),
        pytest.param("global_batch_size,1\n32,1\n64,1\n32,2", "line 4, column 1 .*already, on line 2", id="a batch size twice"),
        pytest.param("global_batch_size,1,2,1\n32,1,1,1", "line 1, column 4: 1 GPUs have a column already", id="a width twice"),
        pytest.param("global_batch_size,1,many\n", "line 1, column 3: 'many' is no whole", id="a width that is none"),
        pytest.param("global_batch_size\n32", "line 1, column 2: there is no column", id="no width"),
        pytest.param("global_batch_size,1\n32,1,2", "line 2, column 3: 3 cells", id="a cell too many"),
        pytest.param("batch,1\n32,1", "line 1, column 1: global_batch_size is wanted", id="another file"),
        pytest.param("", "line 1, column 1", id="empty"),
    ],
)  # fmt: skip
def test_a_bad_table_is_an_error_with_file_line_and_column(
    text: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)

    with pytest.raises(ThroughputTableError, match=rf"bad\.csv.*{said}"):
        read_table(path)
    error = bench(path, "--json").exception
    assert isinstance(error, CommandError)
    assert (error.code, "bad.csv" in str(error)) == (2, True)


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_bytes(b"global_batch_size,1\n32,\xff\xfe")

    with pytest.raises(ThroughputTableError, match=r"bad.csv, byte \d+: this is no UTF-8"):
        judge_tables(tmp_path)


def test_tables_that_say_nothing_are_named_and_passed_over(tmp_path: Path) -> None:
    write_table(tmp_path / "cnn.csv")
    (tmp_path / "notes.csv").write_text("nothing,of,the,kind\n")
    (tmp_path / "few.csv").write_text("global_batch_size,1,2\n32,1,2\n64,1,2\n")
    (tmp_path / "one.csv").write_text("global_batch_size,1\n32,1\n")
    (tmp_path / "none.csv").write_text("global_batch_size,1,2\n32,0,nan\n")

    judged = judge_tables(tmp_path)
    shown = bench(tmp_path, "--json")

    reasons = {name.rpartition("/")[2]: reason for name, reason in judged.skipped}
    assert [table.table.rpartition("/")[2] for table in judged.tables] == ["cnn"]
    assert reasons == {
        "few": "4 measured points: none is left to be held out",
        "none": "nothing in it was measured",
        "notes": "its first line is not that of a table",
        "one": "1 measured point: none is left to be held out",
    }
    assert "few is passed over: 4 measured" in shown.stderr
    assert json.loads(shown.stdout)["passed_over"]["value"] == 4


@pytest.mark.parametrize(
    ("batches", "widths"),
    [
        pytest.param((16, 32, 64, 128, 256, 512), (4,), id="one column"),
        pytest.param((64,), (1, 2, 4, 8, 16, 32), id="one line"),
        pytest.param((48, 96, 144), (1, 3, 6, 12, 24), id="no powers of two"),
        pytest.param((32, 64, 128), (16, 32, 64), id="never inside a node"),
        pytest.param((32, 64, 128), (64, 1, 8, 2), id="columns in any order"),
    ],
)
def test_odd_tables_are_judged_too(
    batches: tuple[int, ...], widths: tuple[int, ...], tmp_path: Path
) -> None:
    write_table(tmp_path / "odd.csv", batches=batches, widths=widths)

    (table,) = judge_tables(tmp_path).tables

    assert len(table.profiled) == 4
    assert len(table.held) == len(batches) * len(widths) - 4
    assert table.mape < 0.2


def test_a_folder_without_tables_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ThroughputTableError, match="no table"):
        judge_tables(tmp_path)
    with pytest.raises(ThroughputTableError, match="there is no"):
        judge_tables(tmp_path / "nowhere")


def test_the_size_of_a_node_is_known_by_its_gpu_or_said(tmp_path: Path) -> None:
    write_table(tmp_path / "cnn.csv")

    assert [node_gpus(name) for name in ("throughputs_T4", "t4", "throughputs_A100", "x")] == [
        4,
        4,
        8,
        8,
    ]
    assert [table.gpus_per_node for table in judge_tables(tmp_path, gpus_per_node=2).tables] == [2]


def test_what_lies_beyond_a_node_is_predicted_from_inside_it(tmp_path: Path) -> None:
    write_table(tmp_path / "wide.csv")
    write_table(tmp_path / "narrow.csv", widths=(1, 2, 4, 8))

    (table,) = beyond_a_node(tmp_path)

    assert max(gpus for _, gpus in table.profiled) == 8
    assert {held.gpus for held in table.held} == {16, 32, 64}
    assert table.covered == len(table.held)


def test_a_setting_chosen_on_some_tables_is_judged_on_the_others(tmp_path: Path) -> None:
    for name in ("A100/a", "A100/b", "T4/c"):
        write_table(tmp_path / f"{name}.csv")
    found = judge_by_pull(tmp_path)

    models, folders = judge_left_out(found, group_by_model), judge_left_out(found, group_by_folder)

    assert models is not None
    assert folders is not None
    assert [table.table for table in models.tables] == ["A100/a", "A100/b", "T4/c"]
    assert judge_left_out(judge_by_pull(tmp_path / "A100"), group_by_folder) is None
    named = json.loads(bench(tmp_path, "--json").stdout)
    assert named["folder_left_out_under_10pct"]["value"] == folders.models_under_10pct


def test_every_held_out_point_can_be_had_as_rows(tmp_path: Path) -> None:
    write_table(tmp_path / "cnn.csv")

    bench(tmp_path, "--points", str(tmp_path / "points.txt"))

    lines = (tmp_path / "points.txt").read_text().splitlines()
    assert len(lines) == 1 + 17
    assert lines[0].startswith("table,gpus_per_node,batch,gpus,measured_s")


@pytest.mark.skipif(not TRACES, reason="LAXITY_TRACES is not set")
def test_four_points_predict_the_published_tables() -> None:
    judged = judge_tables(Path(TRACES) / "elasticflow")
    beyond = [held for table in beyond_a_node(Path(TRACES) / "elasticflow") for held in table.held]

    assert len(judged.tables) == 13
    assert judged.median_ape <= 0.05
    assert judged.models_under_10pct >= 0.8
    assert judged.p90_coverage >= 0.9
    assert sum(held.is_covered for held in beyond) / len(beyond) >= 0.9
    assert judged.worst.table == "throughputs_T4/cifar10"


def test_spread_learned_on_erratic_tables_is_wider(tmp_path: Path) -> None:
    write_table(tmp_path / "calm" / "cnn.csv")
    write_table(
        tmp_path / "wild" / "cnn.csv", seconds=lambda b, w: step_s(b, w) * (1.5 + math.sin(b * w))
    )

    calm, wild = (learn_spread(judge_tables(tmp_path / name).tables) for name in ("calm", "wild"))

    assert all(more > less for more, less in zip(wild[1:3], calm[1:3], strict=True))


@pytest.mark.skipif(not TRACES, reason="LAXITY_TRACES is not set")
@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group_by_folder, id="GPUs"),
        pytest.param(group_by_model, id="tables"),
        pytest.param(lambda table: table.rpartition("/")[2].lower(), id="models"),
    ],
)
def test_p90_holds_on_families_that_its_spread_never_saw(group: Callable[[str], str]) -> None:
    tables = judge_tables(Path(TRACES)).tables

    coverage = coverage_left_out(tables, group)

    assert len(tables) == 35
    assert coverage == pytest.approx(0.9, abs=0.03)


@pytest.mark.skipif(not TRACES, reason="LAXITY_TRACES is not set")
def test_the_shipped_spread_is_the_learned_one() -> None:
    tables = judge_tables(Path(TRACES)).tables

    learned = learn_spread(tables)

    assert learned == pytest.approx(SPREAD, abs=0.005)


@pytest.mark.skipif(not TRACES, reason="LAXITY_TRACES is not set")
def test_four_points_predict_tables_with_gaps() -> None:
    judged = judge_tables(Path(TRACES) / "tables")

    assert len(judged.tables) == 22
    assert judged.median_ape <= 0.12
