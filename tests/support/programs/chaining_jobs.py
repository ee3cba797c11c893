"""`laxity chain` on a manifest, as a process of its own; SUBMISSION kills it around one.

SUBMISSION is `after N` or `before N`: the process kills itself with -9 around its Nth creation.
"""

import os
import signal

import typer

from laxity.cli.exit_codes import run_app
from laxity_k8s.chains.job_queue import JobQueue, open_job_queue
from laxity_scheduler.following.chain_state import LinkRecord
from laxity_scheduler.slurm import commands

side, _, count = os.environ.get("SUBMISSION", "").partition(" ")
submit, left = JobQueue.submit, [int(count or 0)]


def submit_and_die(queue: JobQueue, link: LinkRecord) -> str:
    left[0] -= 1
    if left[0] == 0 and side == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    job_id = submit(queue, link)
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return job_id


setattr(JobQueue, "submit", submit_and_die)  # noqa: B010 - mypy takes no method for another
setattr(commands, "job_queue_opener", lambda: open_job_queue)  # noqa: B010 - whatever is installed
app = typer.Typer()
commands.register(app)
run_app(app)
