"""Files of tests that share a server which starts slowly are one unit, and come first."""

from pathlib import Path

import pytest

from tests.support.server_units import check_unit, order_files, unit_of

TESTS = Path(__file__).parents[1]
PODS = [TESTS / "kubernetes" / f"test_{name}.py" for name in ("pods", "real_loans", "workpool")]
FLOWS = [TESTS / "declare/test_running.py", TESTS / "observe/test_flow_runs.py"]
OTHERS = [TESTS / "train/test_epochs.py", TESTS / "kubernetes/test_loans.py"]


def test_files_that_share_a_server_are_one_unit_and_others_are_units_of_their_own() -> None:
    assert {unit_of(file) for file in PODS} == {"real pods"}
    assert {unit_of(file) for file in FLOWS} == {"Prefect"}
    assert [unit_of(file) for file in OTHERS] == [str(file) for file in OTHERS]


def test_a_file_whose_tests_start_a_server_and_whose_text_hides_it_is_refused() -> None:
    check_unit(FLOWS[0], ["tmp_path", "prefect_api"])
    check_unit(PODS[0], ["prefect_api", "real_pod_cluster"])
    check_unit(PODS[0], ["prefect_api"])
    with pytest.raises(pytest.UsageError, match="shares Prefect but has none of"):
        check_unit(OTHERS[1], ["prefect_api"])
    with pytest.raises(pytest.UsageError, match="shares real pods"):
        check_unit(FLOWS[0], ["prefect_api", "real_pod_cluster"])


def test_a_file_that_names_a_server_and_starts_none_is_a_unit_of_its_own() -> None:
    file = TESTS / "declare/test_bad_jobs.py"  # its service is told: no Prefect

    assert unit_of(file) == str(file)


def test_files_that_share_a_server_come_first_and_then_clusters_and_others_take_turns() -> None:
    computing = [TESTS / "chains" / f"test_{name}.py" for name in ("bench", "networks")]
    clusters = [TESTS / "kubernetes" / f"test_{name}.py" for name in ("faults", "lease", "loans")]
    kinds = dict.fromkeys([*clusters, *PODS], True) | dict.fromkeys([*computing, *FLOWS], False)

    files = order_files(kinds)

    assert files[:5] == [*PODS, *FLOWS]
    assert files[5:] == [clusters[0], computing[0], clusters[1], computing[1], clusters[2]]
