"""The command line, called in this process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner, Result

from laxity.cli.main import main
from laxity_lab.simulate.commands import register


@dataclass(frozen=True)
class CommandLine:
    """Called with what stands behind `laxity`: the exit code."""

    _monkeypatch: pytest.MonkeyPatch
    _capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> int:
        self._monkeypatch.setattr("sys.argv", ["laxity", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        return code if isinstance(code, int) else 0

    def read_output(self) -> tuple[str, str]:
        """What was printed since this was last asked: on standard output, and as errors."""
        out, err = self._capsys.readouterr()
        return out, err

    def read(self) -> str:
        """What was printed on standard output since the last reading."""
        return self.read_output()[0]

    def read_errors(self) -> str:
        return self.read_output()[1]


@pytest.fixture
def laxity(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def invoke(
    words: Sequence[str], *parts: Callable[[typer.Typer], object], env: dict[str, str] | None = None
) -> Result:
    """A command of these parts of `laxity`, in this process."""
    app = typer.Typer()
    app.callback()(lambda: None)
    for register_part in parts:
        register_part(app)
    return CliRunner().invoke(app, words, env=env)


def run_simulate(*words: str) -> tuple[int, str]:
    """`laxity simulate` in this process: exit code and output."""
    result = invoke(["simulate", *words], register)
    return result.exit_code, result.output
