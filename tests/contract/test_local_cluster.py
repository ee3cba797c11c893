"""The local cluster sits the exam of all Cluster APIs."""

from pathlib import Path

import pytest

from tests.contract.cluster_api_exam import EXAM, Question, named
from tests.contract.local_bench import local_bench

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("question", EXAM, ids=named)
def test_the_local_cluster_behaves_as_kubernetes(question: Question, tmp_path: Path) -> None:
    with local_bench(tmp_path) as bench:
        question(bench)
