"""Exams are plain modules; their asserts explain themselves all the same."""

import pytest

EXAMS = (
    "api_answer_exam", "cluster_bench", "job_life_exam", "live_world_exam", "policy_exam",
    "predictor_exam", "world_exam",
)  # fmt: skip
for exam in EXAMS:
    pytest.register_assert_rewrite(f"tests.contract.{exam}")
