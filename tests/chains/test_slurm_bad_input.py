"""What the user has to mend is told at once, in one sentence, and leaves nothing behind."""

import sys
from pathlib import Path
from typing import Final

import pytest

from laxity.cli.exit_codes import FAILED, USAGE, CommandError
from laxity_scheduler.slurm.commands import register
from tests.support.command_line import invoke

SCRIPT: Final = "#!/bin/sh\n#SBATCH --time=1\n"
MANIFEST: Final = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      containers:
        - name: main
          image: i
          command: [train]
          env: [{name: LAXITY_CHAIN_FOLDER, value: /shared}]
"""
REFUSES: Final = "#!/bin/sh\necho 'sbatch: error: invalid partition specified: gpu' >&2\nexit 1\n"
KNOWS_NO_JOB: Final = "#!/bin/sh\n"


@pytest.fixture
def programs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands, first on the path: a Slurm where no job was ever submitted."""
    folder = tmp_path_factory.mktemp("programs")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")
    for name, text in {"sbatch": REFUSES, "squeue": KNOWS_NO_JOB, "sacct": KNOWS_NO_JOB}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def chain_error(*words: str) -> CommandError:
    error = invoke(["chain", *words], register).exception
    assert isinstance(error, CommandError)
    return error


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("name", "content", "options", "words"),
    [
        pytest.param("a.sbatch", None, [], "No such file", id="no script"),
        pytest.param("a.sbatch", b"\x1f\x8b\x00\xff", [], "not a text file", id="no text"),
        pytest.param("a.sbatch", b"echo\n", [], "name an interpreter", id="no interpreter"),
        pytest.param("a.sbatch", b"#!/bin/sh\n#SBATCH -a 1-3\n", [], "no array", id="an array"),
        pytest.param("a.sbatch", b"#!/bin/sh\r\necho\r\n", [], "CRLF", id="of Windows"),
        pytest.param("a.sbatch", b"\xef\xbb\xbf#!/bin/sh\n", [], "byte order mark", id="a mark"),
        pytest.param("a.yaml", b"kind: Pod", [], "one batch/v1 Job is wanted", id="no Job"),
        pytest.param("a.yaml", MANIFEST.encode(), [], "how long a link may run", id="no limit"),
        pytest.param("a.yaml", MANIFEST.encode(), ["--wall-limit", "1h"], "/nowhere", id="no API"),
    ],
)
def test_what_cannot_be_a_chain_leaves_no_folder(
    tmp_path: Path, name: str, content: bytes | None, options: list[str], words: str
) -> None:
    script = tmp_path / name
    if content is not None:
        script.write_bytes(content)
    before = sorted(tmp_path.rglob("*"))

    error = chain_error(str(script), *options)

    assert words in str(error)
    assert (error.code, len(str(error).splitlines())) == (USAGE, 1)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("name", ["SBATCH_ARRAY_INX", "SBATCH_WAIT"])
def test_variable_that_changes_what_a_link_is_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    script = tmp_path / "a.sbatch"
    script.write_text(SCRIPT)
    monkeypatch.setenv(name, "1-3")

    error = chain_error(str(script))

    assert f"{name}=1-3" in str(error)
    assert (error.code, list(tmp_path.iterdir())) == (USAGE, [script])


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("place", ["a.chain", "above/beside/a.chain"])
def test_a_refused_first_link_leaves_nothing_so_that_the_mended_script_begins_anew(
    tmp_path: Path, place: str
) -> None:
    script = tmp_path / "a.sbatch"
    for text in (SCRIPT, SCRIPT + "#SBATCH --partition=gpus\n"):
        script.write_text(text)

        error = chain_error(str(script), "--folder", str(tmp_path / place))

        assert str(error) == "sbatch: invalid partition specified: gpu"
        assert error.code == FAILED
        assert list(tmp_path.iterdir()) == [script]


@pytest.mark.usefixtures("programs")
def test_a_refused_first_link_takes_no_file_away_that_was_there_before(tmp_path: Path) -> None:
    script, own = tmp_path / "a.sbatch", tmp_path / "folder" / "own"
    script.write_text(SCRIPT)
    own.parent.mkdir()
    own.write_text("of the user")

    chain_error(str(script), "--folder", str(own.parent))

    assert own.read_text() == "of the user"


@pytest.mark.usefixtures("programs")
def test_a_chain_of_jobs_without_their_packages_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "laxity_k8s.chains.job_queue", None)
    (tmp_path / "a.yaml").write_text(MANIFEST)

    error = chain_error(str(tmp_path / "a.yaml"), "--wall-limit", "1h")

    assert "pip install '.[kubernetes]'" in str(error)
    assert (error.code, len(str(error).splitlines())) == (USAGE, 1)


def test_a_missing_file_in_slurm_conf_is_told_without_a_call_that_would_look_for_it_for_a_minute(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, calls = tmp_path / "a.sbatch", tmp_path / "calls"
    script.write_text(SCRIPT)
    for program in programs.iterdir():
        program.write_text(f"#!/bin/sh\necho $0 >>{calls}\nexit 1\n")
    monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")

    error = chain_error(str(script))

    assert str(error) == (
        "SLURM_CONF=/nowhere/slurm.conf: no such file to read; name the cluster's slurm.conf"
    )
    assert error.code == USAGE
    assert list(tmp_path.iterdir()) == [script]
