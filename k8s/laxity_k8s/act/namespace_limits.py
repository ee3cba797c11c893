"""What may be created for a token: no more than its namespace allows whoever trains there.

The service acts with an account of its own, so the API server would let it do for anybody what that
account may. The namespace says what is allowed: its pod security level (`restricted` where it names
none), its cap on the class of service, and which service account its pods may have. Namespaces of
the cluster itself, and laxity's, are closed to every token. The cluster on this machine has no such
limits: its Jobs run as the user who starts the service.

What a level allows, the API server knows: it warns of breaches when a Job is created as a dry run. A
dry run of the Pod would be refused outright, but needs the right to create pods; laxity has none.
Where a namespace names no level, the dry run is one in laxity's own namespace, which is `restricted`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from laxity import json_tree, names
from laxity.job.qos import QoSError, raise_all
from laxity_k8s.act.rights import no_rights
from laxity_k8s.cluster_api import FORBIDDEN, NOT_FOUND, REFUSED, ApiError, Json

CLOSED: Final = frozenset({"kube-system", "kube-public", "kube-node-lease"})
MAX_CLASS: Final = f"{names.DOMAIN}/max-class"
SERVICE_ACCOUNT: Final = f"{names.DOMAIN}/service-account"
ENFORCED: Final = "pod-security.kubernetes.io/enforce"
RANKS: Final = {"best_effort": 0, "soft": 1, "hard": 2}
TEMPLATE: Final = "spec.template.spec"
RESTRICTED: Final = "restricted"
LEVELS: Final = frozenset({"privileged", "baseline", RESTRICTED})
BREACH: Final = 'PodSecurity "'


@dataclass(frozen=True, slots=True)
class Limits:
    """`read` gives a namespace by name, or raises ApiError; `own` is the service's own one.

    `try_create` gives what the API server warns of when a Job is created, and creates none.
    """

    read: Callable[[str], Json]
    try_create: Callable[[Json], Sequence[str]]
    own: str

    def check_job(self, job: Json) -> None:
        """Complete the template to the namespace's level; QoSError names all that is not allowed."""
        labels = self._read_labels(job)
        template = json_tree.mapping_at(job, "spec", "template")
        level = labels.get(ENFORCED, RESTRICTED)
        if level not in LEVELS:  # as the API server reads it
            level = RESTRICTED
        if level == RESTRICTED:
            harden_template(template)
        raise_all(
            [
                *self._find_security_errors(job, level, is_named=ENFORCED in labels),
                *_find_account_errors(template, labels),
                *_find_class_errors(json_tree.annotations_of(job), labels),
            ]
        )

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

    def _find_security_errors(self, job: Json, level: str, *, is_named: bool) -> list[QoSError]:
        """Why the API server would make no pods of this Job, in its words."""
        namespace = str(job["metadata"].get("namespace") or "default")
        try:
            if is_named:
                breaches = self._find_breaches(job, namespace, level)
            elif not self._find_breaches(with_open_pod(job), self.own, level):
                return [QoSError("namespace", _no_level(namespace, self.own))]
            else:
                breaches = self._find_breaches(job, self.own, level)
        except ApiError as error:
            if error.status not in REFUSED:
                raise
            return [QoSError("manifest", f"the API server refuses it: {error}")]
        return [QoSError(TEMPLATE, breach) for breach in breaches]

    def _find_breaches(self, job: Json, namespace: str, level: str) -> list[str]:
        """What of this level the API server warns of; a namespace may warn of a stricter one, too."""
        metadata = {key: value for key, value in job["metadata"].items() if key != "name"}
        metadata |= {"namespace": namespace, "generateName": "laxity-dry-run-"}
        warnings = self.try_create({**job, "metadata": metadata})
        return [text for text in warnings if f"{BREACH}{level}:" in text]


def harden_template(template: Json) -> None:
    """Add what `restricted` demands where the template leaves it open."""
    pod = json_tree.mapping_at(template, "spec")
    security = pod.setdefault("securityContext", {})
    if isinstance(security, dict):
        security.setdefault("runAsNonRoot", True)
        security.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    for kind in ("initContainers", "containers"):
        for container in json_tree.list_at(pod, kind):
            own = container.setdefault("securityContext", {})
            if isinstance(own, dict):
                if not own.get("privileged"):  # together they are no valid container
                    own.setdefault("allowPrivilegeEscalation", False)
                capabilities = own.setdefault("capabilities", {})
                if isinstance(capabilities, dict):
                    capabilities.setdefault("drop", ["ALL"])


def with_open_pod(job: Json) -> Json:
    """The Job with a pod that `restricted` refuses: it shows whether a namespace enforces that."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "test", "image": "test"}]}
    return {**job, "spec": {"suspend": True, "template": {"spec": pod}}}


def _no_level(namespace: str, own: str) -> str:
    return (
        f"{namespace} names no pod security level, and {own} does not enforce {RESTRICTED}; an "
        f"administrator names one with: kubectl label namespace {namespace} {ENFORCED}=baseline"
    )


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
