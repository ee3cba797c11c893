"""The first process of a work pool's pod: `python -m laxity.pool prefect flow-run execute`.

The pod of index 0 executes the flow run; where its training uses several workers, the pods of the
other indexes are these, with the same function and parameters. A training that failed for good
fails its Job: Prefect itself ends with 0 once it has recorded a failed run.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Final

from laxity import names
from laxity.notices import say

USAGE: Final = 2
ENV_FAILED: Final = (
    "LAXITY_FAILED"  # a file that is there while the training's last word is failure
)


def main(argv: list[str]) -> int:
    """Run this index's part; the exit code."""
    if not argv:
        say("usage: python -m laxity.pool COMMAND ... (what executes the flow run)")
        return USAGE
    os.environ[names.ENV_POOL] = "1"
    if os.environ.get(names.ENV_INDEX, "0") == "0":
        return execute(argv)
    from laxity.flow_pool import work_for_run

    return work_for_run()


def execute(argv: list[str]) -> int:
    """Execute the flow run in a child, which gets our SIGTERM: to PID 1 nobody else hands it on."""
    with tempfile.TemporaryDirectory() as folder:
        failed = Path(folder) / "failed"
        child = subprocess.Popen(argv, env={**os.environ, ENV_FAILED: str(failed)})

        def hand_on(number: int, _frame: FrameType | None) -> None:
            child.send_signal(number)

        signal.signal(signal.SIGTERM, hand_on)
        code = child.wait()
        if code < 0:
            return 128 - code  # ended by a signal, as a shell shows it
        return USAGE if code == 0 and failed.exists() else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
