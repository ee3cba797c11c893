"""Exams are plain modules; their asserts explain themselves all the same."""

import pytest

for exam in ("cluster_api_exam", "policy_exam", "predictor_exam", "world_exam"):
    pytest.register_assert_rewrite(f"tests.contract.{exam}")
