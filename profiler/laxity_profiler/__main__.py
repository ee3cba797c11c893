"""`python -m laxity_profiler refit`, `predict`, `profile`: this floor's commands without the others.

For a schedule (cron, a CronJob): laxity refit, or python -m laxity_profiler refit.
"""

import typer

from laxity.cli.exit_codes import run_app
from laxity_profiler.cli.commands import register

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
register(app)

if __name__ == "__main__":
    run_app(app)
