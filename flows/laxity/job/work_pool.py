"""A Prefect Kubernetes work pool whose flow runs are jobs with deadlines: its base job template.

    laxity workpool > pool.json
    prefect work-pool create gpu --type kubernetes --base-job-template pool.json

The flow run itself is the Job: the pod of index 0 executes it, and at widths above 1 the pods of the
other indexes are its workers (laxity.pool). laxity suspends and resumes the Job; the run stays one
flow run, because a pod that is told to go gives the run back unfinished (`relinquish`) and the next
one enters it again. That needs backoffLimit >= 1: with 0 Prefect would make a second Job.
"""

from collections.abc import Mapping
from typing import Any, Final

from laxity import names
from laxity.job.accelerators import GPU
from laxity.job.pod_template import (
    DEFAULT_GRACE_S,
    FROM_THE_POD,
    orders_mount,
    orders_volume,
    own_fields,
)

Json = dict[str, Any]

BACKOFF_LIMIT: Final = 1000
CONTAINER: Final = "prefect-job"  # the Kubernetes worker takes no other name
CHECKPOINTS: Final = "/checkpoints"
RELINQUISH: Final = ("PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR", "relinquish")
_JOB: Final = "metadata.labels['batch.kubernetes.io/job-name']"
_QOS: Final = (
    (
        "deadline",
        names.DEADLINE,
        "A duration from submission such as 90m, an instant, or 06:00 Europe/Berlin.",
    ),
    ("service_class", names.CLASS, "hard, soft or best_effort; hard if there is a deadline."),
    ("model", names.MODEL, "Name under which the history of its runs is kept."),
    ("epoch_estimate", names.EPOCH_ESTIMATE, "One epoch on one worker, such as 40s."),
    ("preemptible", names.PREEMPTIBLE, "false: never stopped for others."),
    ("on_miss", names.ON_MISS, "continue or stop, when the deadline is missed."),
    ("wall_limit", names.WALL_LIMIT, "How long one start may run, such as 48h."),
)


_COUNTS: Final = (("widths", names.WIDTHS), ("epochs", names.EPOCHS))


def job_variables(annotations: Mapping[str, str], *, gpus_per_worker: int) -> dict[str, str]:
    """What a declaration says, as variables of the template below."""
    settings = ((variable, annotation) for variable, annotation, _ in _QOS)
    variables = {
        variable: annotations[annotation]
        for variable, annotation in (*settings, *_COUNTS)
        if annotation in annotations
    }
    return {**variables, "gpus_per_worker": str(gpus_per_worker)}


def pool_template() -> Json:
    """The base job template: what `prefect work-pool create --base-job-template` takes."""
    return {"job_configuration": _job_configuration(), "variables": _variables_schema()}


def _job_configuration() -> Json:
    passed = ("command", "env", "labels", "annotations", "name", "namespace", "cluster_config")
    watched = ("job_watch_timeout_seconds", "pod_watch_timeout_seconds", "stream_output")
    return {name: f"{{{{ {name} }}}}" for name in (*passed, *watched)} | {
        "job_manifest": _job_manifest()
    }


def _job_manifest() -> Json:
    """A suspended elastic Job. What has no value is left out by Prefect."""
    annotations = {annotation: f"{{{{ {name} }}}}" for name, annotation, _ in _QOS}
    annotations |= {annotation: f"{{{{ {name} }}}}" for name, annotation in _COUNTS}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "annotations": annotations,
            "labels": {names.MANAGED: "true"},
            "namespace": "{{ namespace }}",
            "generateName": "{{ name }}-",
        },
        "spec": {
            "suspend": True,
            "completionMode": "Indexed",
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": BACKOFF_LIMIT,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": _FAILURES},
            "ttlSecondsAfterFinished": "{{ finished_job_ttl }}",
            "template": {"metadata": {"labels": {names.MANAGED: "true"}}, "spec": _pod_template()},
        },
    }


# A pod that relinquished its run ends with 1: that is no failure of the training. 2: it cannot even
# be started.
_FAILURES: Final[list[Json]] = [
    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2]}},
]


def _pod_template() -> Json:
    return {
        # Without these two, at this wrong place, Prefect's worker refuses a manifest.
        "parallelism": 1,
        "completions": 1,
        "restartPolicy": "Never",
        "serviceAccountName": "{{ service_account_name }}",
        "terminationGracePeriodSeconds": "{{ grace_s }}",
        "nodeSelector": "{{ node_selector }}",
        "containers": [
            {
                "name": CONTAINER,
                "image": "{{ image }}",
                "imagePullPolicy": "{{ image_pull_policy }}",
                "command": ["python", "-m", "laxity.pool"],
                "args": "{{ command }}",
                "env": _pod_environment(),
                "resources": {
                    "limits": {GPU: "{{ gpus_per_worker }}", "memory": "{{ memory_limit }}"},
                    "requests": {"cpu": "{{ cpu_request }}", "memory": "{{ memory_request }}"},
                },
                "volumeMounts": [
                    {"name": "checkpoints", "mountPath": CHECKPOINTS},
                    orders_mount(),
                ],
            }
        ],
        "volumes": ["{{ checkpoints }}", orders_volume()],
    }


def _pod_environment() -> list[Json]:
    """What laxity's runtime is told; the worker puts Prefect's own variables before these."""
    facts = (("POD_NAMESPACE", "metadata.namespace"), ("JOB_NAME", _JOB), *FROM_THE_POD)
    env = (
        (names.ENV_JOB, "$(POD_NAMESPACE)/$(JOB_NAME)"),
        (names.ENV_CHECKPOINTS, f"{CHECKPOINTS}/$({names.ENV_JOB_UID})"),
        (names.ENV_URL, "{{ laxity_url }}"),
        RELINQUISH,
    )
    return [*own_fields(facts), *({"name": name, "value": value} for name, value in env)]


def _variables_schema() -> Json:
    """The form that Prefect's UI shows, and the defaults. No default: left out of the Job."""
    texts = {name: _text_field(description) for name, _, description in _QOS}
    return {
        "type": "object",
        "description": "Jobs with deadlines, scheduled by laxity.",
        "required": ["image"],
        "properties": {
            **texts,
            "widths": _text_field(
                'Allowed numbers of workers, "1,2,4" or "1..4". More than 1 only for a '
                "deadline_flow whose code averages: others would train several models.",
                default="1",
            ),
            "epochs": _text_field("Equal units of work in all.", default="1"),
            "gpus_per_worker": _text_field("GPUs of one worker, all on one node.", default="1"),
            "image": _text_field("Image with laxity, Prefect and the flow's packages."),
            "image_pull_policy": _text_field(
                "IfNotPresent, Always or Never.", default="IfNotPresent"
            ),
            "namespace": _text_field("Namespace of the Jobs.", default="default"),
            "service_account_name": _text_field("Service account of the pods."),
            "laxity_url": _text_field(
                "The service, as pods reach it.", default="http://laxity.laxity.svc:8642"
            ),
            "checkpoints": _object_field(
                "The volume that all workers share, for checkpoints.",
                {
                    "name": "checkpoints",
                    "persistentVolumeClaim": {"claimName": "laxity-checkpoints"},
                },
            ),
            "grace_s": _number_field("Seconds for a checkpoint after SIGTERM.", DEFAULT_GRACE_S),
            "node_selector": _object_field("Labels that a node must have.", {}),
            "cpu_request": _text_field("CPUs of one worker, such as 2 or 500m."),
            "memory_request": _text_field("Memory of one worker, such as 8Gi."),
            "memory_limit": _text_field("Memory beyond which a worker is killed."),
            "finished_job_ttl": _number_field("Seconds that a finished Job is kept."),
            "name": _text_field("Name of the flow runs' Jobs."),
            "command": _text_field(
                "What a pod of index 0 runs; prefect flow-run execute by default."
            ),
            "labels": _object_field("Labels of the Jobs.", {}),
            "annotations": _object_field("Annotations of the Jobs.", {}),
            "env": _object_field("Variables of the flow runs.", {}),
            "cluster_config": {"type": "object", "description": "A KubernetesClusterConfig block."},
            "job_watch_timeout_seconds": _number_field("Seconds without an event of the Job."),
            "pod_watch_timeout_seconds": _number_field("Seconds until a pod is created.", 60),
            "stream_output": {"type": "boolean", "default": True, "description": "Show output."},
        },
    }


def _text_field(description: str, *, default: str | None = None) -> Json:
    schema = {"type": "string", "description": description}
    return schema if default is None else {**schema, "default": default}


def _number_field(description: str, default: int | None = None) -> Json:
    schema = {"type": "integer", "description": description}
    return schema if default is None else {**schema, "default": default}


def _object_field(description: str, default: Json) -> Json:
    return {"type": "object", "description": description, "default": default}
