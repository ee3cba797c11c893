"""`python -m laxity_scheduler serve`: the service's own commands without the rest of laxity."""

import typer

from laxity.cli.exit_codes import run_app
from laxity_scheduler.commands import register

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
register(app)

if __name__ == "__main__":
    run_app(app)
