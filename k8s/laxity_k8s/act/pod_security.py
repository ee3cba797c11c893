"""Kubernetes' Pod Security Standards as tables: what a pod template breaks, in words.

The API server holds a namespace's pods to the level of its label, and Jobs to none; a namespace
without the label has none at all. What is created for somebody's token is held to the level here,
before there is a Job. A field that is missing is fine unless `restricted` demands it; one of a
wrong type is not. Nothing is relaxed for Windows or for user namespaces.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from laxity import json_tree
from laxity_k8s.cluster_api import Json

LEVELS: Final = ("privileged", "baseline", "restricted")
CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
CAPABILITIES: Final = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
SYSCTLS: Final = frozenset(
    [
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
    ]
)
VOLUMES: Final = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)
SELINUX: Final = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
PROFILES: Final = ("RuntimeDefault", "Localhost")
Path = tuple[str, ...]
Allows = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """The value at `path` must be allowed; `is_needed` says that it must be there as well."""

    path: Path
    allows: Allows
    wanted: str
    is_needed: bool = False


def _one_of(values: tuple[Any, ...]) -> Allows:
    return lambda value: any(
        type(value) is type(allowed) and value == allowed for allowed in values
    )


def _allow_values(known: frozenset[str]) -> Allows:
    return lambda value: (
        isinstance(value, list) and all(isinstance(item, str) and item in known for item in value)
    )


def _drops_all(value: Any) -> bool:
    return isinstance(value, list) and "ALL" in value


def _is_ordinary_user(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value != 0


OFF: Final = _one_of((False,))
EMPTY: Final = _one_of(("",))
PROFILE: Final = _one_of(PROFILES)
PROFILE_WORDS: Final = " or ".join(PROFILES)

POD: Final = (
    Rule(("hostNetwork",), OFF, "false"),
    Rule(("hostPID",), OFF, "false"),
    Rule(("hostIPC",), OFF, "false"),
)
SECURITY: Final = (  # of a pod's or a container's securityContext
    Rule(("windowsOptions", "hostProcess"), OFF, "false"),
    Rule(("appArmorProfile", "type"), PROFILE, PROFILE_WORDS),
    Rule(("seLinuxOptions", "type"), _one_of(SELINUX), "a container's type"),
    Rule(("seLinuxOptions", "user"), EMPTY, "left out"),
    Rule(("seLinuxOptions", "role"), EMPTY, "left out"),
    Rule(("seccompProfile", "type"), PROFILE, PROFILE_WORDS),
)
CONTAINER_SECURITY: Final = (
    Rule(("privileged",), OFF, "false"),
    Rule(("procMount",), _one_of(("Default",)), "Default"),
    Rule(
        ("capabilities", "add"),
        _allow_values(CAPABILITIES),
        "among " + ", ".join(sorted(CAPABILITIES)),
    ),
)
HANDLERS: Final = tuple(
    (*where, call, "host")
    for where in (
        ("livenessProbe",),
        ("readinessProbe",),
        ("startupProbe",),
        ("lifecycle", "postStart"),
        ("lifecycle", "preStop"),
    )
    for call in ("httpGet", "tcpSocket")
)
CONTAINER: Final = tuple(Rule(path, EMPTY, "left out") for path in HANDLERS)
RESTRICTED_CONTAINER: Final = (
    Rule(("allowPrivilegeEscalation",), OFF, "false", is_needed=True),
    Rule(("capabilities", "drop"), _drops_all, "[ALL]", is_needed=True),
    Rule(
        ("capabilities", "add"), _allow_values(frozenset({"NET_BIND_SERVICE"})), "NET_BIND_SERVICE"
    ),
)
RESTRICTED: Final = (  # of a pod's or a container's securityContext
    Rule(("runAsNonRoot",), _one_of((True,)), "true"),
    Rule(("runAsUser",), _is_ordinary_user, "another user than 0"),
)
INHERITED: Final = (  # a container has them of its own, or of its pod
    Rule(("runAsNonRoot",), _one_of((True,)), "true", is_needed=True),
    Rule(("seccompProfile", "type"), PROFILE, PROFILE_WORDS, is_needed=True),
)


def find_violations(template: Json, level: str) -> list[str]:
    """What of a pod template breaks this level, each with its place; none for `privileged`."""
    if level == LEVELS[0]:
        return []
    breaches = [*_find_baseline_violations(template)]
    if level != LEVELS[1]:
        breaches += check_restricted(json_tree.mapping_at(template, "spec"))
    return list(dict.fromkeys(breaches))


def harden_template(template: Json) -> None:
    """Add what `restricted` demands where the template leaves it open."""
    pod = json_tree.mapping_at(template, "spec")
    security = pod.setdefault("securityContext", {})
    if isinstance(security, dict):
        security.setdefault("runAsNonRoot", True)
        security.setdefault("seccompProfile", {"type": PROFILES[0]})
    for _, container in _list_containers(pod):
        own = container.setdefault("securityContext", {})
        if isinstance(own, dict):
            own.setdefault("allowPrivilegeEscalation", False)
            capabilities = own.setdefault("capabilities", {})
            if isinstance(capabilities, dict):
                capabilities.setdefault("drop", ["ALL"])


def _find_baseline_violations(template: Json) -> Iterator[str]:
    pod = json_tree.mapping_at(template, "spec")
    yield from _find_broken_rules(pod, POD)
    yield from _find_broken_rules(pod.get("securityContext"), SECURITY, "securityContext")
    for where, container in _list_containers(pod):
        inside = f"{where}.securityContext"
        yield from _find_broken_rules(container, CONTAINER, where)
        yield from _find_broken_rules(
            container.get("securityContext"), (*SECURITY, *CONTAINER_SECURITY), inside
        )
        for port in json_tree.list_at(container, "ports"):
            if json_tree.get_in(port, "hostPort") not in (None, 0):
                yield f"{where}.ports: hostPort must be left out"
    for volume in json_tree.list_at(pod, "volumes"):
        if json_tree.get_in(volume, "hostPath") is not None:
            yield f"volumes: {json_tree.get_in(volume, 'name')} must be no hostPath"
    for sysctl in json_tree.list_at(pod, "securityContext", "sysctls"):
        if json_tree.get_in(sysctl, "name") not in SYSCTLS:
            yield f"securityContext.sysctls: {json_tree.get_in(sysctl, 'name')!s:.60} is not a safe one"
    for name, text in json_tree.annotations_of(template).items():
        allowed = str(text) in ("", "runtime/default") or str(text).startswith("localhost/")
        if name.startswith(APPARMOR) and not allowed:
            yield f"metadata.annotations: {name} must be runtime/default"


def check_restricted(pod: Json) -> Iterator[str]:
    yield from _find_broken_rules(pod.get("securityContext"), RESTRICTED, "securityContext")
    for where, container in _list_containers(pod):
        own, inside = container.get("securityContext"), f"{where}.securityContext"
        yield from _find_broken_rules(own, (*RESTRICTED, *RESTRICTED_CONTAINER), inside)
        for rule in INHERITED:
            if json_tree.get_in(own, *rule.path) is None:
                yield from _find_broken_rules(
                    pod.get("securityContext"), (rule,), "securityContext"
                )
    for volume in json_tree.list_at(pod, "volumes"):
        sources = {*volume} - {"name"} if isinstance(volume, Mapping) else {"?"}
        if not sources <= VOLUMES:
            names = ", ".join(sorted(map(str, sources - VOLUMES)))
            yield f"volumes: {json_tree.get_in(volume, 'name')} is of a kind that is not allowed: {names}"


def _find_broken_rules(value: Any, rules: Iterable[Rule], where: str = "") -> Iterator[str]:
    """The rules that an object breaks, by the path of the field."""
    if value is not None and not isinstance(value, Mapping):
        yield f"{where}: must be an object"
        return
    for rule in rules:
        value_at = json_tree.get_in(value, *rule.path)
        if not rule.is_needed if value_at is None else rule.allows(value_at):
            continue
        place = ".".join(filter(None, (where, *rule.path)))
        yield f"{place} must be {rule.wanted}"


def _list_containers(pod: Json) -> Iterator[tuple[str, Json]]:
    for kind in CONTAINERS:
        for number, container in enumerate(json_tree.list_at(pod, kind)):
            if isinstance(container, dict):
                yield f"{kind}[{number}]", container
