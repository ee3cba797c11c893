"""A manifest of one training becomes the Job of one link.

The link's time limit is the pod's activeDeadlineSeconds, not the Job's: a Job's clock runs while its
pods still wait for room, a pod's begins on its node. Exit code 7 fails the Job by its own rule, so
that the code stands in the Job's condition when the pod is gone.
"""

import json
import shlex
from typing import Any, Final

import yaml

from laxity import json_tree, names
from laxity.job.manifest_yaml import load_documents
from laxity.worker.chain_link import EXIT_UNFINISHED
from laxity_k8s.cluster_api import Json
from laxity_scheduler.following.chain_state import ChainState, LinkRecord
from laxity_scheduler.following.link_wrapper import link_body

LONGEST_NAME: Final = 36  # of the manifest; chain, link and try come behind it
PULL_S: Final = 60.0  # from a pod's start to its container's: the image is pulled meanwhile ...
PULL_SHARE: Final = 0.1  # ... at most this share of the limit
LOST_NODE: Final = {  # the Job makes another pod, which goes on
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
OURS: Final = (names.DEADLINE, names.CLASS, names.WALL_LIMIT)

_SETUP: Final = """
folder={folder}
link={link}
job={job}
index=${{JOB_COMPLETION_INDEX:-0}}
export LAXITY_CHAIN_ID={chain_id}  # name of the chain
ends_at=$(($(date +%s) + {left_s}))
mkdir -p "$folder/links"
"""


def read_manifest(text: str) -> Json:
    """The Job that each link runs. ValueError says which field is missing or cannot be a link's."""
    try:
        documents = load_documents(text)
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {' '.join(str(error).split())}") from error
    if len(documents) != 1 or json_tree.get_in(documents[0], "kind") != "Job":
        raise ValueError("one batch/v1 Job is wanted, which each link runs")
    job: Json = documents[0]
    if not json_tree.get_in(job, "metadata", "name"):
        raise ValueError("the Job has no metadata.name")
    _check_owner(job)
    _check_pod(job)
    return job


def _check_owner(job: Json) -> None:
    annotation = next((name for name in OURS if name in json_tree.annotations_of(job)), "")
    if annotation or json_tree.labels_of(job).get(names.MANAGED):
        message = (
            f"{annotation or names.MANAGED}: this Job is for laxity's own queue, which runs its links "
            f"by itself. Submit it with {names.WALL_LIMIT}, or remove it for a chain in another queue"
        )
        raise ValueError(message)


def _check_pod(job: Json) -> None:
    pod = json_tree.mapping_at(job, "spec", "template", "spec")
    if pod.get("restartPolicy", "Never") != "Never":
        raise ValueError("restartPolicy: write Never: a link that ends is followed by the next one")
    if not json_tree.list_at(pod, "containers", 0, "command"):
        message = "containers[0].command: say what runs; the lock of the chain is put before it"
        raise ValueError(message)
    if not find_shared_folder(job).startswith("/"):
        message = (
            f"containers[0].env: set {names.ENV_CHAIN_FOLDER} to a folder on a volume that all links "
            "mount: their lock and checkpoints are there"
        )
        raise ValueError(message)


def find_shared_folder(job: Json) -> str:
    """Where all chains of this manifest have their folders; empty where it says none."""
    container = json_tree.mapping_at(job, "spec", "template", "spec", "containers", 0)
    values = (
        entry.get("value")
        for entry in json_tree.list_at(container, "env")
        if json_tree.get_in(entry, "name") == names.ENV_CHAIN_FOLDER
    )
    return str(next(values, None) or "")


def read_limit_s(job: Json, limit_s: float) -> float:
    """How long a link may run: as asked for, else by the manifest. ValueError if neither says it."""
    where = (("spec", "template", "spec"), ("spec",))
    own = (json_tree.get_in(job, *path, "activeDeadlineSeconds") for path in where)
    seconds = limit_s or next((float(limit) for limit in own if isinstance(limit, int)), 0.0)
    if seconds < 1.0:
        raise ValueError("say how long a link may run: --wall-limit 24h, or activeDeadlineSeconds")
    return seconds


def name_link(job: Json, state: ChainState, link: LinkRecord) -> str:
    """The name of the link's next Job: the same one however often it is asked for."""
    base = str(job["metadata"]["name"])[:LONGEST_NAME].rstrip("-.")
    again = f"-{len(link.lost_ids) + 1}" if link.lost_ids else ""
    return f"{base}-{state.chain_id}-{link.seq}{again}"


def build_link(manifest: Json, state: ChainState, link: LinkRecord, limit_s: float) -> Json:
    """The Job to create for this link."""
    job: Json = json.loads(json.dumps(manifest))
    name, spec = name_link(job, state, link), job["spec"]
    chain_labels = {names.CHAIN: state.chain_id, names.CHAIN_LINK: str(link.seq)}
    metadata: dict[str, Any] = job["metadata"]
    metadata.update(name=name, labels={**json_tree.labels_of(job), **chain_labels})
    job.pop("status", None)
    for field in ("activeDeadlineSeconds", "ttlSecondsAfterFinished"):  # its end must stay known
        spec.pop(field, None)
    rules = json_tree.list_at(spec, "podFailurePolicy", "rules")
    unfinished = {"operator": "In", "values": [EXIT_UNFINISHED]}
    spec["podFailurePolicy"] = {
        "rules": [{"action": "FailJob", "onExitCodes": unfinished}, *rules, LOST_NODE]
    }
    spec["backoffLimit"] = 0
    template, pod = spec["template"], spec["template"]["spec"]
    labels = {**json_tree.labels_of(template), **chain_labels}
    template["metadata"] = {**json_tree.mapping_at(template, "metadata"), "labels": labels}
    pod.update(restartPolicy="Never", activeDeadlineSeconds=round(limit_s))
    _wrap(pod["containers"][0], job, state, link, limit_s)
    return job


def _wrap(container: Json, job: Json, state: ChainState, link: LinkRecord, limit_s: float) -> None:
    setup = _SETUP.format(
        folder=shlex.quote(f"{find_shared_folder(job).rstrip('/')}/{state.chain_id}"),
        link=link.seq,
        job=shlex.quote(str(job["metadata"]["name"])),
        chain_id=shlex.quote(state.chain_id),
        left_s=round(limit_s - min(PULL_S, PULL_SHARE * limit_s)),
    )
    export = f'export {names.ENV_ENDS_AT}="$ends_at"'
    body = link_body(setup=setup, ends_at=export, command='"$@"', code_0_is_done=True)
    # $(NAME) is Kubernetes' own in a command; $$(NAME) is passed on as it stands.
    text = body.replace("$(", "$$(")
    container["command"] = ["sh", "-c", text, "laxity-chain", *container["command"]]
