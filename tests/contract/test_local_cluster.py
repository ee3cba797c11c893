"""The local cluster sits the exam of all Cluster APIs."""

from pathlib import Path

import pytest

from tests.contract.api_answer_exam import ANSWERS
from tests.contract.cluster_bench import Question, named
from tests.contract.job_life_exam import LIVES
from tests.contract.local_bench import local_bench

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("question", [*LIVES, *ANSWERS], ids=named)
def test_the_local_cluster_behaves_as_kubernetes(question: Question, tmp_path: Path) -> None:
    with local_bench(tmp_path) as bench:
        question(bench)
