"""What a user says is kept exactly: through Python, annotations and the Job, there and back."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity import QoS, TrainingSpec
from laxity.durations import LONGEST, format_duration, parse_deadline, parse_duration
from laxity.job.annotations import read_qos, write_qos
from laxity.job.qos import MOST_EPOCHS
from laxity.job.spec import job_name
from laxity.job.widths import WIDEST_UNNAMED, format_widths, parse_widths

durations = st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=3652))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
instants = st.timedeltas(timedelta(days=365), timedelta(days=365 * 65)).map(EPOCH.__add__)
submissions = st.timedeltas(timedelta(0), timedelta(days=400)).map(
    lambda after: (
        datetime(2026, 1, 1, microsecond=250_000, tzinfo=UTC) + timedelta(seconds=after.seconds)
    )
)
widths = st.none() | st.sets(st.integers(1, 4096), min_size=1, max_size=20).map(
    lambda several: tuple(sorted(several))
)
wall_limits = st.none() | durations.map(timedelta.total_seconds)
estimates = st.none() | durations.map(timedelta.total_seconds)
texts = st.text(st.characters(categories=["L", "N", "P", "Zs"]), min_size=1, max_size=50).filter(
    str.strip
)
parameters = st.dictionaries(
    st.text(max_size=10),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=5,
    ),
    max_size=4,
)  # fmt: skip


@st.composite
def qualities(draw: st.DrawFn) -> QoS:
    deadline = draw(st.none() | durations | instants)
    estimate_s, wall_limit_s = draw(estimates), draw(wall_limits)
    classes = ["best_effort"] if deadline is None else ["hard", "soft"]
    return QoS(
        deadline=deadline,
        service_class=draw(st.sampled_from(classes)),
        widths=draw(widths),
        gpus_per_worker=draw(st.integers(1, 16)),
        preemptible=draw(st.booleans()),
        epoch_estimate_s=estimate_s,
        on_miss=draw(st.sampled_from(["continue", "stop"])),
        wall_limit_s=None if wall_limit_s is None else max(wall_limit_s, estimate_s or 0.0),
    )


def most_epochs(qos: QoS) -> int:
    """So many that they end within ten years on the widest."""
    widest = qos.widths[-1] if qos.widths else WIDEST_UNNAMED
    return int(min(MOST_EPOCHS, LONGEST.total_seconds() * widest / (qos.epoch_estimate_s or 1.0)))


@st.composite
def specs(draw: st.DrawFn) -> TrainingSpec:
    count = st.none() | st.integers(1, 2**40)
    qos = draw(qualities())
    return TrainingSpec(
        name=draw(st.from_regex(r"\A[a-z]([-a-z0-9]{0,20}[a-z0-9])?\Z")),
        namespace=draw(st.sampled_from(["default", "team-a"])),
        qos=qos,
        model=draw(texts.filter(str.isprintable)),
        epochs=draw(st.integers(1, most_epochs(qos))),
        entry=draw(st.sampled_from(["train:main", "a.b.c:Class.fit", "/srv/x y/train.py:main"])),
        parameters=draw(parameters),
        samples=draw(count),
        batch_size=draw(count),
        dataset_bytes=draw(count),
        idempotency_key=draw(st.none() | texts.filter(str.isprintable)),
        submitted_at=draw(st.none() | submissions),
        attempt=draw(st.integers(1, 10_000)),
        env=draw(st.dictionaries(st.sampled_from(["A", "LAXITY_URL"]), st.text(max_size=9))
                 .filter(lambda env: "\0" not in "".join(env.values()))),
    )  # fmt: skip


@given(qualities())
def test_annotations_say_the_same_qos_again(qos: QoS) -> None:
    annotations = write_qos(qos)

    again = read_qos(annotations, gpus_per_worker=qos.gpus_per_worker)

    assert again == qos
    assert all(isinstance(value, str) for value in annotations.values())


@given(specs())
def test_a_job_as_json_says_the_same_spec_again(spec: TrainingSpec) -> None:
    manifest = json.loads(json.dumps(spec.to_manifest()))

    again = TrainingSpec.from_manifest(manifest)

    assert again == TrainingSpec.from_manifest(again.to_manifest())
    assert (again.qos, again.parameters, again.env) == (spec.qos, spec.parameters, spec.env)
    assert (again.id, again.model, again.idempotency_key) == (
        spec.id,
        spec.model,
        spec.idempotency_key,
    )
    assert again.submitted_at == spec.submitted_at


@given(durations)
def test_a_duration_is_read_back_to_the_microsecond(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(widths)
def test_widths_are_read_back(several: tuple[int, ...] | None) -> None:
    assert parse_widths(format_widths(several)) == several


@given(st.text(max_size=80))
def test_any_text_is_a_deadline_or_a_value_error(text: str) -> None:
    try:
        deadline = parse_deadline(text)
    except ValueError:
        return
    assert not isinstance(deadline, timedelta) or deadline > timedelta(0)


@given(st.dictionaries(st.sampled_from(["deadline", "class", "widths", "on-miss", "epochs", "x"]),
                       st.text(max_size=40) | st.integers() | st.none()))  # fmt: skip
def test_any_annotations_are_a_qos_or_a_value_error(said: dict[str, Any]) -> None:
    annotations = {f"laxity.dev/{name}": value for name, value in said.items()}
    try:
        qos = read_qos(annotations)
    except ValueError:
        return
    assert qos.service_class in {"hard", "soft", "best_effort"}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("90s", timedelta(seconds=90), id="seconds"),
        pytest.param("20m", timedelta(minutes=20), id="minutes"),
        pytest.param("1d12h", timedelta(hours=36), id="a day and a half"),
        pytest.param("1h30m", timedelta(minutes=90), id="an hour and a half"),
        pytest.param("1.5h", timedelta(minutes=90), id="a fraction"),
        pytest.param("123456s", timedelta(seconds=123_456), id="digits that could be a date"),
        pytest.param("2026-11-21T00:00Z", datetime(2026, 11, 21, tzinfo=UTC), id="an instant"),
        pytest.param(
            "2026-11-21T01:00+01:00", datetime(2026, 11, 21, tzinfo=UTC), id="another zone"
        ),
    ],
)
def test_deadlines_are_read_as_people_write_them(text: str, want: datetime | timedelta) -> None:
    assert parse_deadline(text) == want


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("6am", "is no deadline; write 90s, 20m", id="a time of day"),
        pytest.param("6pm", "2026-11-21T18:00Z or 06:00 Europe/Berlin", id="another time of day"),
        pytest.param("tomorrow", "2026-11-21T18:00Z or 06:00 Europe/Berlin", id="a day"),
        pytest.param("20", "20 of what? Write the unit", id="no unit"),
        pytest.param("20min", "is no duration", id="a unit that is not ours"),
    ],
)
def test_a_deadline_in_another_form_is_answered_with_forms_to_write(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_deadline(text)


@pytest.mark.parametrize("text", ["$(HOME)", "$$", "$$(HOME)", "5 $", "$("])
def test_kubernetes_does_not_expand_what_a_parameter_says(text: str) -> None:
    spec = TrainingSpec(name="train", qos=QoS(), entry="train:main", parameters={"text": text})

    (container,) = spec.to_manifest()["spec"]["template"]["spec"]["containers"]

    expanded = [
        re.sub(r"\$\$|\$\(HOME\)", lambda found: "$" if found[0] == "$$" else "/root", row["value"])
        for row in container["env"]
        if row["name"] == "LAXITY_PARAMETERS"
    ]
    assert [json.loads(value) for value in expanded] == [{"text": text}]


@pytest.mark.parametrize(
    ("said", "want"),
    [
        pytest.param({"deadline": "2h"}, "hard", id="a deadline alone is hard"),
        pytest.param({"deadline": "2h", "service_class": "soft"}, "soft", id="unless it says soft"),
        pytest.param({}, "best_effort", id="no deadline is best effort"),
    ],
)
def test_the_class_follows_from_the_deadline(said: dict[str, Any], want: str) -> None:
    assert QoS.of(**said).service_class == want


@pytest.mark.parametrize(
    ("workers", "want"),
    [
        pytest.param(3, (3,), id="one number"),
        pytest.param((4, 1, 2, 2), (1, 2, 4), id="in any order"),
        pytest.param("1..4", (1, 2, 3, 4), id="a range"),
        pytest.param("1,2,4..6", (1, 2, 4, 5, 6), id="both"),
        pytest.param(range(1, 4), (1, 2, 3), id="a range of Python"),
        pytest.param("auto", None, id="laxity chooses"),
    ],
)
def test_workers_become_widths(workers: Any, want: tuple[int, ...] | None) -> None:
    assert QoS.of(workers=workers).widths == want


def test_a_key_is_one_name_and_no_key_is_a_new_name_each_time() -> None:
    long_title = "Ünïcode & a very long title of a training that nobody would type twice"

    names = [job_name(long_title, "commit-1"), job_name(long_title, "commit-1")]
    others = {job_name(long_title, "commit-2"), job_name(long_title), job_name(long_title)}

    assert names[0] == names[1]
    assert len(others | {*names}) == 4
    assert all(TrainingSpec(name=name, qos=QoS()).name == name for name in others)
    assert names[0].startswith("unicode-a-very-long"), "accents go, letters stay"


def test_a_job_written_by_hand_needs_only_a_label_and_a_deadline() -> None:
    container = {"name": "main", "image": "train:1", "resources": {"limits": {"nvidia.com/gpu": 2}}}
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "plain",
            "labels": {"laxity.dev/managed": "true"},
            "annotations": {"laxity.dev/deadline": "2h", "team": "vision"},
        },
        "spec": {"parallelism": 3, "template": {"spec": {"containers": [container]}}},
    }

    spec = TrainingSpec.from_manifest(manifest)

    assert (spec.id, spec.model, spec.epochs) == ("default/plain", "plain", 1)
    assert (spec.qos.service_class, spec.qos.widths) == ("hard", (3,))
    assert (spec.qos.gpus_per_worker, spec.qos.preemptible) == (2, False)
    assert spec.plain


def test_what_laxity_writes_on_a_job_is_no_input() -> None:
    said = write_qos(QoS.of(deadline="2h"))
    told = {"laxity.dev/verdict": "{not json", "laxity.dev/status": "x" * 70_000}

    assert read_qos(said | told) == QoS.of(deadline="2h")


def test_the_users_pod_is_merged_into_the_job() -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "digits"}}]
    spec = TrainingSpec(
        name="train",
        qos=QoS.of(workers=(2, 4), gpus_per_worker=4),
        entry="train:main",
        template={
            "image": "train:1",
            "volumes": volumes,
            "nodeSelector": {"gpu": "h100"},
            "env": {"LAXITY_CHECKPOINTS": "/data/checkpoints"},
            "resources": {"requests": {"cpu": "8"}},
            "terminationGracePeriodSeconds": 120,
        },
    )

    job = spec.to_manifest()["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    variables = {row["name"]: row.get("value") for row in container["env"]}
    assert (job["parallelism"], job["completions"], job["suspend"]) == (2, 2, True)
    *theirs, ours = pod["volumes"]
    assert (theirs, pod["nodeSelector"]) == (volumes, {"gpu": "h100"})
    assert list(ours) == ["name", "downwardAPI"], "what the pod is told, for when it cannot ask"
    assert (pod["terminationGracePeriodSeconds"], pod["restartPolicy"]) == (120, "Never")
    assert container["command"] == ["python", "-m", "laxity.worker", "train:main"]
    assert container["resources"] == {"requests": {"cpu": "8"}, "limits": {"nvidia.com/gpu": "4"}}
    assert variables["LAXITY_CHECKPOINTS"] == "/data/checkpoints"
    assert variables["LAXITY_JOB"] == "default/train"
    assert {"POD_IP", "LAXITY_JOB_UID"} <= {*variables}
