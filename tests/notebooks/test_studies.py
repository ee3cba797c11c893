"""Studies: rows that are kept, made again, and not made twice."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.cases import Made
from laxity_lab.traces.traces import TraceError
from studies import qos_study
from studies.__main__ import study
from studies.datasets import TRACE_FILES, Datasets, open_datasets
from studies.notebook_tables import (
    change,
    gain,
    having,
    rows,
    spread,
    values,
    with_interval,
)
from studies.results import mean_rows, read_rows, write_rows
from studies.study import STUDIES, Study, run_study
from studies.study_rows import LABELS, Cell, Row, Trial, cell_text, row_key
from tests.support.command_line import invoke

KEPT = Path(__file__).parents[2] / "notebooks/figures"
SAMPLES = open_datasets(samples=True)
COMPARED: list[tuple[str, Row]] = [  # rows on traces that ship: anybody can compute them again
    ("elasticflow", {"trace": "195job"}),
    ("ladder", {"trace": "195job", "gpus": 32, "policy": "elasticflow"}),
    ("ladder", {"trace": "195job", "gpus": 128, "policy": "qos"}),
    ("errors", {"trace": "195job", "cost_model": "flat", "error": 0.2, "seed": 1}),
    ("errors", {"trace": "195job", "cost_model": "live", "policy": "edf_elastic", "error": 0.2}),
    ("qos", {"policy": "edf_elastic", "seed": 0}),
    ("pickyman", {"trace": "195job", "policy": "pickyman", "part": "closed", "seed": 0}),
    ("pickyman", {"trace": "made", "policy": "pickyman", "seed": 0}),
]


def whole_on_samples(name: str) -> list[Trial]:
    """The trials of the whole study that need no other traces than the samples."""
    return STUDIES[name].trials(Datasets(SAMPLES.folder), range(5))


def small(_datasets: Datasets, seeds: Sequence[int]) -> list[Trial]:
    return [trial(seed) for seed in seeds]


def trial(seed: int) -> Trial:
    def compute() -> Row:
        if seed == 7:
            message = "seven is not to be had"
            raise ValueError(message)
        made.append(seed)
        return {"jobs": 10 + seed, "deadline_met_ratio": 1.0 / (3 + seed)}

    return Trial({"part": "a part", "policy": "p", "error": 0.1, "seed": seed}, compute)


made: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


def test_rows_that_are_there_are_not_computed_again(tmp_path: Path) -> None:
    study = Study("small", "", small)
    run_study(study, SAMPLES, range(2), tmp_path)
    run_study(study, SAMPLES, range(3), tmp_path)
    assert made == [0, 1, 2]
    assert [row["seed"] for row in read_rows(tmp_path, "small")] == [0, 1, 2]


def test_the_same_rows_give_the_same_bytes_in_whatever_order_they_came(tmp_path: Path) -> None:
    study = Study("small", "", small)
    run_study(study, SAMPLES, (0, 1, 2), tmp_path / "one")
    run_study(study, SAMPLES, (2, 0), tmp_path / "two")
    run_study(study, SAMPLES, (1, 2), tmp_path / "two")
    for name in ("small.csv", "small.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_trial_that_fails_leaves_the_others_alone_and_is_told(tmp_path: Path) -> None:
    problems = run_study(Study("small", "", small), SAMPLES, (6, 7, 8), tmp_path)
    assert problems == ["a part, p, 0.1, 7: seven is not to be had"]
    assert [row["seed"] for row in read_rows(tmp_path, "small")] == [6, 8]


def test_a_row_reads_as_it_was_written(tmp_path: Path) -> None:
    row: Row = {"part": "2024", "policy": "p", "gpus": 8, "error": 0.5, "seed": 1, "jobs": None}
    write_rows(tmp_path, "one", [row])
    assert read_rows(tmp_path, "one") == [row]


def test_means_are_over_seeds_with_their_interval(tmp_path: Path) -> None:
    run_study(Study("small", "", small), SAMPLES, (0, 1, 2), tmp_path)
    (group,) = mean_rows(read_rows(tmp_path, "small"))
    assert (group["runs"], group["jobs"]) == (3, 11.0)
    assert group["jobs_ci95"] == pytest.approx(4.303 / 3**0.5, rel=1e-3)  # t of 2, deviation 1


def test_comparisons_are_paired_by_seed() -> None:
    ours, theirs = {0: 1.0, 1: 4.0, 2: 9.0}, {0: 2.0, 1: 8.0}
    assert change(ours, theirs) == (-50.0, 0.0)
    assert gain(ours, theirs) == pytest.approx((-250.0, 12.706 * 150.0), rel=1e-3)
    assert with_interval(spread({})) == "-"
    assert with_interval((-12.34, 0.5)) == "-12.3 +- 0.5"


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_no_two_trials_of_a_study_have_the_same_labels(name: str) -> None:
    for trials in (STUDIES[name].trials(SAMPLES, range(2)), whole_on_samples(name)):
        assert len({one.key for one in trials}) == len(trials) > 0


@pytest.mark.slow
def test_on_the_ample_cluster_nobody_waits_for_a_gpu_and_on_a_smaller_one_somebody_does() -> None:
    case_of = [Made(qos_study.mix(qos_study.LOADS["ample"], jobs=40), seed) for seed in range(10)]

    def waited_s(nodes: int) -> float:
        settings = Setting("fifo", nodes, qos_study.GPUS_PER_NODE)
        runs = [simulate(case.load(), settings) for case in case_of]
        return sum(job.first_start_at - job.submitted_at for run in runs for job in run.outcomes)

    assert waited_s(qos_study.AMPLE_NODES) == 0.0
    assert waited_s(qos_study.AMPLE_NODES - 1) > 0.0


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_a_kept_row_is_one_that_its_study_makes(name: str, tmp_path: Path) -> None:
    for book in TRACE_FILES.values():  # a study names its trials without reading the traces
        path = book.source(tmp_path).path
        path.parent.mkdir(exist_ok=True)
        path.touch()
    known = {one.key for one in STUDIES[name].trials(Datasets(tmp_path), range(10))}
    kept = {row_key(row) for row in read_rows(KEPT, name)}
    assert kept
    assert kept <= known


@pytest.mark.slow
@pytest.mark.timeout(600)  # the first of a clone compiles loops
@pytest.mark.parametrize(
    ("name", "wanted"),
    [pytest.param(*one, id=f"{one[0]} {number}") for number, one in enumerate(COMPARED)],
)
def test_a_kept_row_computed_again_is_the_same(name: str, wanted: Row) -> None:
    kept = {row_key(row): row for row in having(read_rows(KEPT, name), **wanted)}
    trials = [one for one in whole_on_samples(name) if one.key in kept]
    assert len(trials) == len(kept) > 0
    for one in trials:
        for figure, value in one.row().items():
            assert same(kept[one.key].get(figure), value), f"{one.labels}: {figure}"


def same(kept: Cell, now: Cell) -> bool:
    """Equal in the digits that are kept."""
    if isinstance(now, float) and isinstance(kept, int | float):
        return kept == pytest.approx(float(cell_text(now)), rel=1e-5)
    return kept == now


def test_traces_that_are_not_there_are_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LAXITY_TRACES", raising=False)
    with pytest.raises(TraceError, match="LAXITY_TRACES"):
        open_datasets()
    with pytest.raises(TraceError, match="no trace 04"):
        SAMPLES.source("04")


def test_a_page_without_rows_says_how_to_make_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAXITY_STUDY", raising=False)
    with pytest.raises(RuntimeError, match="python -m studies qos --out"):
        rows("qos", tmp_path)


def called(*words: str) -> tuple[int, str]:
    result = invoke(["study", *words], lambda app: app.command("study")(study))
    return result.exit_code, result.output


def test_the_command_makes_the_rows_that_are_wanted(tmp_path: Path) -> None:
    words = ("--samples", "--out", str(tmp_path), "--where", "policy=edf")
    code, output = called("elasticflow", *words)
    assert (code, "[1/1]" in output) == (0, True)
    (row,) = read_rows(tmp_path, "elasticflow")
    assert row["trace"] == "195job"
    assert 0.0 < float(str(row["deadline_met_ratio"])) < 1.0
    assert "[1/1]" not in called("elasticflow", *words)[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["best"], "pickyman", id="an unknown study lists those there are"),
        pytest.param(["qos", "--samples", "--where", "colour=red"], "LABEL=VALUE", id="a label"),
    ],
)
def test_what_cannot_be_studied_is_said_in_one_line(words: list[str], says: str) -> None:
    code, output = called(*words)
    assert code == 2
    assert says in output
    assert "Traceback" not in output


def test_labels_name_a_row_and_nothing_else_does() -> None:
    assert values([{"seed": 1, "jobs": 3}], "jobs") == {1: 3.0}
    assert row_key({"part": "x", "jobs": 3}) == ("x", *[""] * (len(LABELS) - 1))
