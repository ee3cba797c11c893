"""`laxity chain` as a process: its own command, whichever laxity is installed."""

import typer

from laxity.cli.exit_codes import run_app
from laxity_scheduler.slurm.commands import register

app = typer.Typer()
register(app)
run_app(app)
