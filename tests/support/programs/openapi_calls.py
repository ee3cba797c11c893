"""Calls each operation that a service's OpenAPI document names, with so many examples of its schema.

    python -m tests.support.programs.openapi_calls ADDRESS TOKEN EXAMPLES PART PARTS

prints how many calls it made; an answer of another kind than the document names ends it with an error.
Of PARTS parts of the operations it takes one. A call names the Job default/known in one of two cases.

It is a process of its own as hypothesis takes it for a fault that numbers are drawn from `random`
while it makes a case, and threads which other tests have left behind, as Prefect's, draw some.
"""

import logging
import random
import sys
import warnings
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok

LOG = logging.getLogger(__name__)


def call_each_operation(address: str, token: str, examples: int, part: int, parts: int) -> int:
    load_all_checks()
    kept = CHECKS.get_by_names(
        ["not_a_server_error", "status_code_conformance", "response_schema_conformance"]
    )
    shown = {"Authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    chance = random.Random(3)
    calls, slowest_s = 0, 0.0
    for found in list(schema.get_all_operations())[part::parts]:
        assert isinstance(found, Ok)
        operation = found.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        def call(case: Any) -> None:
            nonlocal calls, slowest_s
            if case.path_parameters and chance.random() < 0.5:
                case.path_parameters.update(namespace="default", name="known")
            answer = case.call(headers=shown)
            calls, slowest_s = calls + 1, max(slowest_s, answer.elapsed)
            case.validate_response(answer, checks=kept)

        before = calls
        call()
        LOG.info("%s: %d calls", operation.label, calls - before)
    LOG.info("%d calls, slowest %.2f s", calls, slowest_s)
    return calls


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    warnings.simplefilter("error")
    address, token, *numbers = sys.argv[1:]
    sys.stdout.write(f"{call_each_operation(address, token, *map(int, numbers))}\n")
