"""The first process of a work pool's pod: `python -m laxity.pool prefect flow-run execute`.

The pod of index 0 executes the flow run; where its training uses several workers, the pods of the
other indexes are these, with the same function and parameters. Prefect itself ends with 0 once it
has recorded the end of a run, whatever it is. But a training that failed for good fails its Job, and
one that was cancelled in the middle does not complete it: the pod waits for the service, which
deletes the Job of a cancelled run, so that it counts as cancelled, neither kept nor broken.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Final

from laxity import names
from laxity.flow.last_word import ENV_WORD, FAILED, TRAINING, USAGE
from laxity.stderr import say
from laxity.worker.sigterm import EXIT_STOPPED

CANCELLED_S: Final = 60.0  # until who cancelled the run has deleted its Job


def main(argv: list[str]) -> int:
    """Run this index's part; the exit code."""
    if not argv:
        say("usage: python -m laxity.pool COMMAND ... (what executes the flow run)")
        return USAGE
    os.environ[names.ENV_POOL] = "1"
    if os.environ.get(names.ENV_INDEX, "0") == "0":
        return execute(argv)
    from laxity.flow.pod_run import work_for_run

    return work_for_run()


def execute(argv: list[str]) -> int:
    """Execute the flow run in a child, which gets our SIGTERM: to PID 1 nobody else hands it on."""
    with tempfile.TemporaryDirectory() as folder:
        word = Path(folder) / "word"
        child = subprocess.Popen(argv, env={**os.environ, ENV_WORD: str(word)})
        told_to_go = threading.Event()

        def hand_on(number: int, _frame: FrameType | None) -> None:
            told_to_go.set()
            child.send_signal(number)

        signal.signal(signal.SIGTERM, hand_on)
        code = child.wait()
        if code < 0:
            return 128 - code  # ended by a signal, as a shell shows it
        return code or _code_after(word.read_text() if word.exists() else "", told_to_go)


def _code_after(word: str, told_to_go: threading.Event) -> int:
    """The exit code of a pod whose run has ended, by the training's last word."""
    if word == TRAINING:
        say("the run was cancelled while it trained: waiting for its Job to be deleted")
        return EXIT_STOPPED if told_to_go.wait(CANCELLED_S) else USAGE
    return USAGE if word == FAILED else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
