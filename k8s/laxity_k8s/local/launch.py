"""What a pod's first container runs with: its command, environment and working folder.

The local cluster has no images, so the container runs with this machine's programs, in its
submitter's working folder and environment as far as its Job says them (laxity.flow.project), with what
Kubernetes would add. What cannot be done here (images, volumes, values from secrets) is left out and
said once.
"""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from laxity import json_tree, names
from laxity.job.pod_template import DEFAULT_IMAGE, ORDERS
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.pods import COMPLETION_INDEX

ADDRESS = "127.0.0.1"
REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
FIELD_KEY = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start, and what of the pod is not to be had on this machine."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    passed_over: tuple[str, ...]


def build_launch(
    pod: Json, *, ambient: Mapping[str, str], extra: Mapping[str, str], cwd: Path
) -> Launch:
    """The first container of a pod as a process; `extra` counts unless the container sets it.

    A container that says no PATH finds this interpreter's programs first.
    """
    container = json_tree.get_in(pod, "spec", "containers", 0) or {}
    own, missing = container_env(container, pod, extra)
    env = dict(ambient) | own_env(pod) | dict(extra) | own
    if "PATH" not in own:
        env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', os.defpath)}"
    argv = [*json_tree.list_at(container, "command"), *json_tree.list_at(container, "args")]
    folder = container.get("workingDir")
    if folder and not Path(folder).is_dir():
        missing.append(f"workingDir {folder}")
    return Launch(
        tuple(expand_variables(str(word), env) for word in argv),
        env,
        str(folder if folder and Path(folder).is_dir() else cwd),
        (*missing, *find_ignored_fields(pod)),
    )


def own_env(pod: Json) -> dict[str, str]:
    """What the kubelet and the job controller set by themselves."""
    env = {
        "HOSTNAME": json_tree.get_in(pod, "spec", "hostname")
        or json_tree.object_id(pod).split("/")[-1]
    }
    index = json_tree.annotations_of(pod).get(COMPLETION_INDEX)
    if index is not None:
        env[names.ENV_INDEX] = index
    return env


def container_env(
    container: Json, pod: Json, extra: Mapping[str, str] = MappingProxyType({})
) -> tuple[dict[str, str], list[str]]:
    """Its own variables, which may be made of `extra` ones, and what is not to be had here."""
    env: dict[str, str] = {}
    missing = []
    for entry in json_tree.list_at(container, "env"):
        name = str(entry.get("name", ""))
        field = json_tree.get_in(entry, "valueFrom", "fieldRef", "fieldPath")
        if field is not None:
            env[name] = field_value(str(field), pod)
        elif "valueFrom" in entry:
            missing.append(f"env {name}")
        else:
            env[name] = expand_variables(str(entry.get("value", "")), {**extra, **env})
    return env, missing


def field_value(path: str, pod: Json) -> str:
    """A downward API field of a pod; "" where there is nothing."""
    keyed = FIELD_KEY.fullmatch(path)
    if keyed:
        return str(json_tree.mapping_at(pod, "metadata", keyed[1]).get(keyed[2], ""))
    if path in {"status.podIP", "status.hostIP", "status.podIPs", "status.hostIPs"}:
        return ADDRESS
    return str(json_tree.get_in(pod, *path.split(".")) or "")


def expand_variables(text: str, env: Mapping[str, str]) -> str:
    """$(NAME) from the environment; an unknown one stays, $$ is a dollar sign."""
    return REFERENCE.sub(
        lambda found: "$" if found[1] is None else env.get(found[1], found[0]), text
    )


def find_ignored_fields(pod: Json) -> list[str]:
    spec = json_tree.mapping_at(pod, "spec")
    first = json_tree.get_in(spec, "containers", 0) or {}
    image = first.get("image")
    fields = [] if image in {None, "", DEFAULT_IMAGE} else [f"image {image}"]
    volumes = [volume.get("name") for volume in json_tree.list_at(spec, "volumes")]
    fields += [f"volume {name}" for name in volumes if name != ORDERS]
    fields += [
        f"container {other.get('name')}" for other in json_tree.list_at(spec, "containers")[1:]
    ]
    return fields + [
        f"init container {container.get('name')}"
        for container in json_tree.list_at(spec, "initContainers")
    ]
