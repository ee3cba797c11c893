"""What may be created for a token: no more than its namespace allows whoever trains there.

The service acts with an account of its own, so the API server would let it do for anybody what that
account may. The namespace says what is allowed: its pod security level (`restricted` where it names
none), its cap on the class of service, and which service account its pods may have. Namespaces of
the cluster itself, and laxity's, are closed to every token. The cluster on this machine has no such
limits: its Jobs run as the user who starts the service.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from laxity import json_tree, names
from laxity.job.qos import QoSError, raise_all
from laxity_k8s.act.pod_security import LEVELS, find_violations, harden_template
from laxity_k8s.act.rights import no_rights
from laxity_k8s.cluster_api import FORBIDDEN, NOT_FOUND, ApiError, Json

CLOSED: Final = frozenset({"kube-system", "kube-public", "kube-node-lease"})
MAX_CLASS: Final = f"{names.DOMAIN}/max-class"
SERVICE_ACCOUNT: Final = f"{names.DOMAIN}/service-account"
ENFORCED: Final = "pod-security.kubernetes.io/enforce"
RANKS: Final = {"best_effort": 0, "soft": 1, "hard": 2}
TEMPLATE: Final = "spec.template.spec"
MOST_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """`read` gives a namespace by name, or raises ApiError; `own` is the service's own one."""

    read: Callable[[str], Json]
    own: str

    def check_job(self, job: Json) -> None:
        """Complete the template to the namespace's level; QoSError names all that is not allowed."""
        labels = self._read_labels(job)
        template = json_tree.mapping_at(job, "spec", "template")
        level = labels.get(ENFORCED, LEVELS[-1])
        if level not in LEVELS[:2]:  # as the API server: what it cannot read is `restricted`
            level = LEVELS[-1]
            harden_template(template)
        problems = [
            *_find_security_errors(template, level),
            *_find_account_errors(template, labels),
        ]
        raise_all([*problems, *_find_class_errors(json_tree.annotations_of(job), labels)])

    def check_class(self, job: Json, notes: Json) -> None:
        """QoSError if the Job with these annotations is of a class above its namespace's."""
        raise_all(
            _find_class_errors({**json_tree.annotations_of(job), **notes}, self._read_labels(job))
        )

    def _read_labels(self, job: Json) -> dict[str, str]:
        namespace = str(json_tree.get_in(job, "metadata", "namespace") or "default")
        if namespace in CLOSED or namespace == self.own:
            raise QoSError("namespace", f"{namespace} is not for trainings: choose another one")
        try:
            return json_tree.labels_of(self.read(namespace))
        except ApiError as error:
            if error.status == NOT_FOUND:
                raise QoSError("namespace", f"there is no namespace {namespace}") from error
            if error.status == FORBIDDEN:
                raise QoSError("namespace", no_rights(namespace, self.own)) from error
            raise


def _find_security_errors(template: Json, level: str) -> list[QoSError]:
    breaches = find_violations(template, level)
    more = [f"and {len(breaches) - MOST_NAMED} more"] if len(breaches) > MOST_NAMED else []
    if not breaches:
        return []
    listed = "; ".join([*breaches[:MOST_NAMED], *more])
    return [QoSError(TEMPLATE, f"breaks pod security level {level!r} of its namespace: {listed}")]


def _find_account_errors(template: Json, labels: Json) -> list[QoSError]:
    """Accounts and priorities that the cluster or somebody else's workload has."""
    pod, problems = json_tree.mapping_at(template, "spec"), []
    if str(pod.get("priorityClassName") or "").startswith("system-"):
        problems.append(
            QoSError(f"{TEMPLATE}.priorityClassName", "system- classes are the cluster's")
        )
    allowed = {"", "default", labels.get(SERVICE_ACCOUNT, "default")}
    for field in ("serviceAccountName", "serviceAccount"):
        if str(pod.get(field) or "") not in allowed:
            problem = (
                f"{pod[field]!s:.63} is not open to trainings; an administrator opens it with: "
                f"kubectl label namespace NAME {SERVICE_ACCOUNT}={pod[field]!s:.63}"
            )
            problems.append(QoSError(f"{TEMPLATE}.{field}", problem))
    return problems


def _find_class_errors(notes: Json, labels: Json) -> list[QoSError]:
    """The class, if it is above what the namespace allows: the rule of admission.yaml."""
    by_rule = "hard" if notes.get(names.DEADLINE) is not None else "best_effort"
    wanted_class, most = str(notes.get(names.CLASS) or by_rule), labels.get(MAX_CLASS, "hard")
    if RANKS.get(wanted_class, 0) <= RANKS.get(most, RANKS["hard"]):
        return []
    problem = f"{wanted_class} is above what the namespace allows ({MAX_CLASS}={most})"
    return [QoSError("class", problem)]
