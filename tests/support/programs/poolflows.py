"""Flows that a work pool runs: the flow run is the Job."""

from typing import Any

from laxity import Training, deadline_flow
from tests.support.programs import podtrainings


@deadline_flow(name="pooled", workers=(1, 2), epochs=300)
def pooled(training: Training, folder: str) -> dict[str, Any]:
    return podtrainings.paced(training, folder)
