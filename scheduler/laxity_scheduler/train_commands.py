"""`laxity train`: models that are learned from logs and tables, each by a command of its folder."""

import typer

from laxity_scheduler.chains.train_command import provisioner
from laxity_scheduler.policy_training.train_command import policy


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Learn models from logs and tables.", rich_markup_mode=None)
    group.callback()(lambda: None)
    group.command("provisioner")(provisioner)
    group.command("policy")(policy)
    app.add_typer(group, name="train")
