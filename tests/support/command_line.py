"""The command line, called in this process."""

import pytest
import typer
from typer.testing import CliRunner

from laxity.cli.main import main
from laxity_scheduler.simulate.commands import register


def laxity(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process; its exit code."""
    monkeypatch.setattr("sys.argv", ["laxity", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    return code if isinstance(code, int) else 0


def run_simulate(*words: str) -> tuple[int, str]:
    """`laxity simulate` in this process: exit code and output."""
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, ["simulate", *words])
    return result.exit_code, result.output
