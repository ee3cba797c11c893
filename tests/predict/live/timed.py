"""The entry of a job that trains an example and also says what CPU time each epoch took.

On a machine that others use too, the CPU time of worker 0 tells what the code does, and the epoch
time what the machine made of it.
"""

import time
from collections.abc import Iterator
from typing import Any

from laxity import Training
from laxity.worker.code.entrypoint import call_arguments, load_function


def timed(training: Training, entry: str, given: str = "{}") -> Any:
    """Run `entry` with the JSON parameters `given`; each epoch logs `cpu_s`."""
    plain = training.epochs

    def epochs(*args: Any, **named: Any) -> Iterator[int]:
        for epoch in plain(*args, **named):
            began_s = time.process_time()
            yield epoch
            training.log(cpu_s=time.process_time() - began_s)

    training.epochs = epochs  # type: ignore[method-assign]
    function = load_function(entry)
    return function(**call_arguments(function, training, given))
