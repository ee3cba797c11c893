"""What cannot be meant is refused where it is said: by field, in words, with what to write instead."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from laxity import QoS, QoSError, TrainingSpec, deadline_flow

SOUND: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "train",
        "labels": {"laxity.dev/managed": "true"},
        "annotations": {"laxity.dev/deadline": "2h", "laxity.dev/epochs": "10"},
    },
    "spec": {
        "completionMode": "Indexed",
        "template": {"spec": {"containers": [{"name": "train", "image": "train:1"}]}},
    },
}


@pytest.mark.parametrize(
    ("said", "field", "hint"),
    [
        pytest.param({"deadline": 20}, "deadline", "no unit", id="a bare number"),
        pytest.param({"deadline": "20"}, "deadline", "20m", id="a number without a unit"),
        pytest.param({"deadline": ""}, "deadline", "1h30m", id="an empty text"),
        pytest.param({"deadline": "soon"}, "deadline", "1h30m", id="a word"),
        pytest.param({"deadline": "30m1h"}, "deadline", "largest unit first", id="minutes first"),
        pytest.param({"deadline": "-2h"}, "deadline", "no duration", id="a negative duration"),
        pytest.param({"deadline": "0s"}, "deadline", "longer than 0s", id="no time at all"),
        pytest.param({"deadline": "1e9h"}, "deadline", "no duration", id="scientific notation"),
        pytest.param({"deadline": "4000d"}, "deadline", "ten years", id="eleven years"),
        pytest.param({"deadline": "9" * 12 + "d"}, "deadline", "ten years", id="12 digits of days"),
        pytest.param({"deadline": "9" * 500 + "d"}, "deadline", "no duration", id="500 digits"),
        pytest.param({"deadline": math.nan}, "deadline", "no unit", id="NaN"),
        pytest.param({"deadline": "inf"}, "deadline", "no deadline", id="infinity"),
        pytest.param({"deadline": "nan"}, "deadline", "no deadline", id="nan as a text"),
        pytest.param({"deadline": timedelta(0)}, "deadline", "longer than 0s", id="zero timedelta"),
        pytest.param(
            {"deadline": timedelta(seconds=-1)}, "deadline", "-1s", id="negative timedelta"
        ),
        pytest.param(
            {"deadline": "2026-11-21T18:00"}, "deadline", "18:00:00Z", id="a time without a zone"
        ),
        pytest.param(
            {"deadline": datetime(2026, 11, 21)},  # noqa: DTZ001 - the mistake in question
            "deadline",
            "+01:00",
            id="a naive datetime",
        ),
        pytest.param({"deadline": "2026-02-30T00:00Z"}, "deadline", "day", id="30 February"),
        pytest.param(
            {"deadline": datetime(2126, 1, 1, tzinfo=UTC)},
            "deadline",
            "ten years",
            id="next century",
        ),
        pytest.param(
            {"deadline": "1h", "service_class": "gold"},
            "service_class",
            "hard, soft, best_effort",
            id="an unknown class",
        ),
        pytest.param(
            {"service_class": "hard"}, "deadline", "for example 2h", id="hard without a deadline"
        ),
        pytest.param(
            {"service_class": "soft"}, "deadline", "soft job needs", id="soft without a deadline"
        ),
        pytest.param(
            {"service_class": "best_effort", "deadline": "1h"},
            "service_class",
            "say soft",
            id="best effort with a deadline",
        ),
        pytest.param({"workers": 0}, "workers", "from 1 to 4096", id="no workers"),
        pytest.param({"workers": -2}, "workers", "from 1 to 4096", id="negative workers"),
        pytest.param({"workers": (1, 5000)}, "workers", "from 1 to 4096", id="5000 workers"),
        pytest.param({"workers": "1..99999"}, "workers", "4096", id="a range without end"),
        pytest.param({"workers": "4..1"}, "workers", "backwards", id="a backward range"),
        pytest.param({"workers": "many"}, "workers", '"auto"', id="workers in words"),
        pytest.param({"workers": ()}, "workers", "names no worker count", id="no widths"),
        pytest.param({"workers": True}, "workers", "whole number", id="a flag for workers"),
        pytest.param({"workers": 1.5}, "workers", "whole number", id="one and a half workers"),
        pytest.param({"workers": math.inf}, "workers", "whole number", id="infinite workers"),
        pytest.param({"workers": range(10**12)}, "workers", "4096", id="a range of 10^12"),
        pytest.param({"gpus_per_worker": 0}, "gpus_per_worker", "from 1", id="no GPU"),
        pytest.param({"gpus_per_worker": "2"}, "gpus_per_worker", "whole", id="GPUs as text"),
        pytest.param({"preemptible": "no"}, "preemptible", "True nor False", id="no for False"),
        pytest.param({"epoch_estimate": 90}, "epoch_estimate", "'90s'", id="estimate, no unit"),
        pytest.param({"epoch_estimate": "0s"}, "epoch_estimate", "0s", id="epochs in no time"),
        pytest.param({"wall_limit": "0s"}, "wall_limit", "longer than 0s", id="links of no time"),
        pytest.param({"wall_limit": 48}, "wall_limit", "'90s'", id="a limit, no unit"),
        pytest.param({"on_miss": "abort"}, "on_miss", "continue, stop", id="unknown on_miss"),
    ],
)
def test_a_qos_that_cannot_be_meant_names_its_field_and_the_remedy(
    said: dict[str, Any], field: str, hint: str
) -> None:
    with pytest.raises(QoSError) as error:
        QoS.of(**said)

    assert error.value.field == field
    assert hint in error.value.problem
    assert len(error.value.problems) == 1


@pytest.mark.parametrize(
    ("annotation", "value", "field", "hint"),
    [
        pytest.param("deadlin", "2h", "deadlin", "laxity.dev/deadline", id="a misspelt name"),
        pytest.param("deadline", "2 hours", "deadline", "1h30m", id="a deadline in words"),
        pytest.param("deadline", 7200, "deadline", "quotes", id="a number in YAML"),
        pytest.param("class", "Hard", "class", "hard, soft", id="a class in capitals"),
        pytest.param("widths", "1-4", "widths", '"1..4"', id="a hyphen for a range"),
        pytest.param("widths", "1," * 40_000, "widths", "64 KiB", id="80 KB of widths"),
        pytest.param("epochs", "ten", "epochs", "whole number", id="epochs in words"),
        pytest.param("epochs", "0", "epochs", "from 1 to 1000000", id="no epochs"),
        pytest.param("epochs", "1000001", "epochs", "from 1 to 1000000", id="a million and one"),
        pytest.param("epochs", "NaN", "epochs", "whole number", id="NaN epochs"),
        pytest.param("preemptible", "yes", "preemptible", "'false'", id="yes for true"),
        pytest.param("epoch-estimate", "5", "epoch-estimate", "5s", id="an estimate, no unit"),
        pytest.param("wall-limit", "-1h", "wall-limit", "1h30m", id="a negative limit"),
        pytest.param("entry", "no-colon", "entry", "module:function", id="no function"),
        pytest.param("parameters", "{nope", "parameters", "", id="no JSON"),
        pytest.param("on-miss", "die", "on-miss", "continue, stop", id="unknown on-miss"),
        pytest.param("parameters", "[1]", "parameters", "object", id="a list of parameters"),
        pytest.param("parameters", '{"a": NaN}', "parameters", "NaN", id="NaN in JSON"),
        pytest.param("parameters", "[" * 60_000, "parameters", "", id="60,000 brackets"),
        pytest.param("batch-size", "-1", "batch-size", "from 1", id="a negative batch"),
        pytest.param(
            "samples", "9" * 30, "samples", "whole number of too many digits", id="10^30 samples"
        ),
        pytest.param("entry", "rm -rf /", "entry", "module:function", id="a command as entry"),
        pytest.param("model", "\x00", "model", "", id="a zero byte as model"),
        pytest.param("submitted-at", "today", "submitted-at", "18:00Z", id="today"),
        pytest.param("attempt", "0", "attempt", "from 1", id="attempt 0"),
    ],
)
def test_a_job_with_a_wrong_annotation_is_told_which(
    annotation: str, value: Any, field: str, hint: str
) -> None:
    metadata = SOUND["metadata"]
    annotations = {**metadata["annotations"], f"laxity.dev/{annotation}": value}

    with pytest.raises(QoSError) as error:
        TrainingSpec.from_manifest({**SOUND, "metadata": {**metadata, "annotations": annotations}})

    assert error.value.field == field
    assert hint in error.value.problem


@pytest.mark.parametrize(
    ("changes", "field", "hint"),
    [
        pytest.param({"metadata": []}, "metadata", "no mapping", id="metadata is a list"),
        pytest.param(
            {"metadata": {**SOUND["metadata"], "name": "A b"}}, "name", "DNS label", id="a bad name"
        ),
        pytest.param(
            {"metadata": {**SOUND["metadata"], "name": "a" * 64}},
            "name",
            "1 to 63",
            id="a name of 64",
        ),
        pytest.param(
            {"metadata": {**SOUND["metadata"], "name": None}}, "name", "DNS label", id="no name"
        ),
        pytest.param(
            {"metadata": {**SOUND["metadata"], "namespace": "../x"}},
            "namespace",
            "DNS",
            id="a path",
        ),
        pytest.param(
            {"metadata": {**SOUND["metadata"], "labels": {}}},
            "metadata.labels",
            "is not 'true'",
            id="no label",
        ),
        pytest.param(
            {"metadata": {**SOUND["metadata"], "labels": [1]}},
            "metadata.labels",
            "no mapping",
            id="label list",
        ),
        pytest.param({"kind": "CronJob"}, "kind", "not batch/v1 Job", id="another kind"),
        pytest.param(
            {"spec": {}}, "spec.template.spec.containers", "one container", id="no container"
        ),
        pytest.param(
            {"spec": {**SOUND["spec"], "parallelism": -1}}, "parallelism", "", id="-1 pods"
        ),
        pytest.param(
            {"spec": {**SOUND["spec"], "parallelism": "4"}}, "parallelism", "", id="a text"
        ),
    ],
)
def test_a_manifest_that_is_no_job_of_laxity_is_told_why(
    changes: dict[str, Any], field: str, hint: str
) -> None:
    with pytest.raises(QoSError) as error:
        TrainingSpec.from_manifest({**SOUND, **changes})

    assert any(where == field and hint in what for where, what in error.value.problems)


@pytest.mark.parametrize("annotation", ["deadline", "class", "epoch-estimate", "wall-limit"])
@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_one_wrong_annotation_is_one_problem_on_any_job(annotation: str, mode: str) -> None:
    metadata, spec = SOUND["metadata"], {**SOUND["spec"], "completionMode": mode}
    annotations = {"laxity.dev/deadline": "2h", f"laxity.dev/{annotation}": "20 or so"}

    with pytest.raises(QoSError) as error:
        TrainingSpec.from_manifest(
            {**SOUND, "spec": spec, "metadata": {**metadata, "annotations": annotations}}
        )

    assert [where for where, _ in error.value.problems] == [annotation]


def test_wrong_widths_are_told_beside_a_wrong_deadline() -> None:
    annotations = {"laxity.dev/deadline": "20 or so", "laxity.dev/widths": "2..4"}
    metadata, spec = SOUND["metadata"], {**SOUND["spec"], "completionMode": "NonIndexed"}

    with pytest.raises(QoSError) as error:
        TrainingSpec.from_manifest(
            {**SOUND, "spec": spec, "metadata": {**metadata, "annotations": annotations}}
        )

    assert {where for where, _ in error.value.problems} == {"deadline", "widths"}


def test_all_that_is_wrong_is_told_at_once() -> None:
    annotations = {"laxity.dev/deadline": "2x", "laxity.dev/epochs": "0", "laxity.dev/modle": "m"}
    metadata = {**SOUND["metadata"], "name": "Not Good", "annotations": annotations}

    with pytest.raises(QoSError) as error:
        TrainingSpec.from_manifest({**SOUND, "metadata": metadata})

    assert {where for where, _ in error.value.problems} == {"deadline", "epochs", "modle", "name"}
    assert all(what in str(error.value) for _, what in error.value.problems)


def plain(training: Any, hidden: int = 1) -> int:
    return hidden


async def waiting(training: Any) -> None: ...


def yielding(training: Any) -> Any:
    yield 1


def without_training(hidden: int) -> int:
    return hidden


def with_stars(training: Any, *sizes: int) -> int:
    return len(sizes)


@pytest.mark.parametrize(
    ("options", "function", "field", "hint"),
    [
        pytest.param({}, waiting, "training", "use def", id="an async function"),
        pytest.param({}, yielding, "training", "return", id="a generator"),
        pytest.param({}, without_training, "training", "first parameter", id="no training"),
        pytest.param({}, with_stars, "training", "sizes", id="nameless parameters"),
        pytest.param({}, 3, "training", "no function", id="a number"),
        pytest.param({"deadline": "2"}, plain, "deadline", "2h", id="a deadline without a unit"),
        pytest.param({"epochs": 0}, plain, "epochs", "from 1", id="no epochs"),
        pytest.param({"epochs": 1.5}, plain, "epochs", "whole", id="one and a half epochs"),
        pytest.param({"model": "a\nb"}, plain, "model", "printed", id="a line break in the model"),
        pytest.param({"namespace": "Team A"}, plain, "namespace", "DNS", id="a bad namespace"),
        pytest.param({"env": {"A": 1}}, plain, "env", "'1'", id="a number in the environment"),
        pytest.param({"env": {"LAXITY_JOB": "x"}}, plain, "env", "LAXITY_JOB", id="our variable"),
        pytest.param(
            {"template": {"imag": "x"}}, plain, "template", "'image'", id="a misspelt override"
        ),
        pytest.param(
            {"template": {"restartPolicy": "Always"}}, plain, "template", "cannot", id="ours"
        ),
        pytest.param(
            {"template": {"resources": {"limits": {"nvidia.com/gpu": 4}}}},
            plain,
            "template",
            "gpus_per_worker",
            id="GPUs said twice",
        ),
        pytest.param({"tags": ("",)}, plain, "tags", "empty", id="an empty tag"),
    ],
)
def test_a_declaration_that_cannot_be_meant_fails_where_it_stands(
    options: dict[str, Any], function: Callable[..., Any], field: str, hint: str
) -> None:
    with pytest.raises(QoSError) as error:
        deadline_flow(**options)(function)

    assert error.value.field == field
    assert hint in str(error.value)
