"""Why the API server refuses a Job's pods, as its controller writes it into Events."""

import pytest

from laxity_k8s.objects.controller_events import pod_refusal

WORDS = "ValidatingAdmissionPolicy 'team' denied request: every pod needs label team"


@pytest.mark.parametrize(
    "before",
    [
        pytest.param('Error creating: pods "a-0-kj8rg" is forbidden: ', id="a policy"),
        pytest.param("Error creating: ", id="a webhook"),
        pytest.param(
            '(combined from similar events): Error creating: pods "a-0-kj8rg" is forbidden: ',
            id="the tenth in a row",
        ),
    ],
)
def test_a_refusal_is_told_without_the_name_of_the_pod(before: str) -> None:
    event = {"type": "Warning", "message": before + WORDS}
    assert pod_refusal([event]) == WORDS
