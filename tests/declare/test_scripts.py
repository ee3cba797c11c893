"""What a job of a script declares, from `laxity run` and from `deadline_script`."""

import json
import sys
from typing import Any

import pytest

from laxity import QoSError, TrainingSpec, deadline_script, names
from laxity.cli.job_source import option_annotations, script_manifest
from laxity.flow.script import Script


def manifest(*command: str, **fields: Any) -> dict[str, Any]:
    """The Job of `laxity run` for this command."""
    script = Script(command, **fields)
    return script_manifest(script, option_annotations("1h"), name="sft")


def test_script_is_a_hundred_epochs_and_stays_unless_it_resumes() -> None:
    job = manifest("python", "train.py", "--lr", "0.1")

    spec = TrainingSpec.from_manifest(job)
    assert (spec.name, spec.model, spec.epochs) == ("sft", "sft", 100)
    assert spec.parameters["command"] == ["python", "train.py", "--lr", "0.1"]
    assert (spec.qos.preemptible, spec.resumes) == (False, False)


def test_script_that_resumes_may_be_stopped_with_its_grace() -> None:
    job = manifest("bash", "train.sh", resumes=True, resume_args=("--again",), grace_s=90)

    spec = TrainingSpec.from_manifest(job)
    assert (spec.qos.preemptible, spec.resumes) == (True, True)
    assert spec.parameters["resume_args"] == ["--again"]
    assert spec.parameters["grace_s"] == 90
    assert job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 90


@pytest.mark.parametrize(
    ("command", "title"),
    [
        (("python", "sub/train_net.py", "a.b"), "train_net"),
        (("bash", "train.sh"), "train"),
        (("python", "-m", "package.train", "--x"), "package.train"),
        (("python", "-u", "-m", "package.train", "--with", "helper.py"), "package.train"),
        (("torchrun", "--nproc-per-node", "2", "-m", "package.train"), "package.train"),
        (("numactl", "-m", "0", "python", "train.py"), "train"),
        (("./train.py", "-m", "mean"), "train"),
        (("trainer", "-c", "large.yaml"), "trainer"),
        (("/usr/bin/make", "model"), "make"),
    ],
)
def test_script_is_called_by_its_file_its_module_or_its_program(
    command: tuple[str, ...], title: str
) -> None:
    assert Script(command).title == title


def test_lines_of_a_shell_share_no_history() -> None:
    lines = ["python a.py --big", "python b.py", "python b.py"]
    titles = [Script(("bash", "-c", line)).title for line in lines]
    assert titles[0] != titles[1] == titles[2]
    assert all(title.startswith("bash-") for title in titles)


def test_deadline_script_declares_what_laxity_run_does() -> None:
    flow = deadline_script("bash train.sh", deadline="1h", name="sft", epoch_estimate="200s")

    made = TrainingSpec.from_manifest(flow.spec().to_manifest())
    typed = TrainingSpec.from_manifest(manifest("bash", "train.sh"))
    for field in ("epochs", "entry", "parameters", "resumes", "model"):
        assert getattr(made, field) == getattr(typed, field), field
    assert made.qos.preemptible == typed.qos.preemptible
    assert made.qos.epoch_estimate_s == 2.0


def test_python_file_runs_with_this_python() -> None:
    flow = deadline_script("train.py --lr 0.1", deadline="1h")

    assert flow.spec().parameters["command"] == [sys.executable, "train.py", "--lr", "0.1"]


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [("", {}, "is empty"), ("train.py", {"workers": 2}, "launcher"), ("a", {"epok": 1}, "epok")],
)
def test_what_cannot_be_meant_is_refused(command: str, options: Any, words: str) -> None:
    with pytest.raises((QoSError, TypeError), match=words):
        deadline_script(command, deadline="1h", **options)


def test_words_of_the_command_reach_the_worker_unchanged() -> None:
    words = ["bash", "-c", "echo $HOME $(pwd) $$ 'ä'"]

    env = manifest(*words)["spec"]["template"]["spec"]["containers"][0]["env"]

    (value,) = [row["value"] for row in env if row["name"] == names.ENV_PARAMETERS]
    assert json.loads(value.replace("$$", "$"))["command"] == words
