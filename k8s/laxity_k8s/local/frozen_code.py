"""The code of a Job that says `freeze`: copied when the Job is created, imported by its workers."""

import os
from pathlib import Path

from laxity import json_tree, names
from laxity.job.qos import QoSError
from laxity.private_files import private_folder
from laxity.worker.code.code_copy import copy_code
from laxity_k8s.cluster_api import Json
from laxity_k8s.local.launch import container_env


def is_frozen(job: Json) -> bool:
    return bool(json_tree.annotations_of(job).get(names.FREEZE) == "true")


def freeze_code(job: Json, into: Path) -> None:
    """Copy what the workers of this Job import: from its working directory, import path and entry.

    QoSError if that cannot be copied.
    """
    pod = json_tree.mapping_at(job, "spec", "template")
    container = json_tree.get_in(pod, "spec", "containers", 0) or {}
    env, _ = container_env(container, pod)
    place = str(json_tree.annotations_of(job).get(names.ENTRY, "")).rpartition(":")[0]
    workdir = str(container.get("workingDir") or "")
    if not Path(workdir).is_dir():
        raise QoSError("freeze", f"{workdir or 'the Job'} is no working directory on this machine")
    texts = [workdir, *env.get("PYTHONPATH", "").split(os.pathsep)]
    texts += [str(Path(place).parent)] if place.endswith(".py") else []
    copy_code([Path(text) for text in texts if text], private_folder(into))
