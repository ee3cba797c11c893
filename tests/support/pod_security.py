"""Pods that break a level of pod security, each in one way."""

from typing import Any

from laxity_k8s.cluster_api import Json


def template(**spec: Any) -> Json:
    container = {"name": "train", "image": "train:1"}
    return {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def inside(**container: Any) -> Json:
    return template(containers=[{"name": "train", "image": "train:1", **container}])


def secured(**context: Any) -> Json:
    return inside(securityContext=context)


def pod_secured(**context: Any) -> Json:
    return template(securityContext=context)


BASELINE = {
    "the host's network": template(hostNetwork=True),
    "the host's processes": template(hostPID=True),
    "the host's memory": template(hostIPC=True),
    "a folder of the host": template(volumes=[{"name": "root", "hostPath": {"path": "/"}}]),
    "a port of the host": inside(ports=[{"containerPort": 80, "hostPort": 80}]),
    "privileged": secured(privileged=True),
    "an init container that is privileged": template(
        initContainers=[{"name": "init", "securityContext": {"privileged": True}}]
    ),
    "a capability": secured(capabilities={"add": ["SYS_ADMIN"]}),
    "all capabilities": secured(capabilities={"add": ["ALL"]}),
    "an open /proc": secured(procMount="Unmasked"),
    "no seccomp": pod_secured(seccompProfile={"type": "Unconfined"}),
    "no seccomp in a container": secured(seccompProfile={"type": "Unconfined"}),
    "no AppArmor": pod_secured(appArmorProfile={"type": "Unconfined"}),
    "an SELinux type": pod_secured(seLinuxOptions={"type": "spc_t"}),
    "an SELinux user": secured(seLinuxOptions={"user": "root"}),
    "a kernel setting": pod_secured(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    "a host process of Windows": pod_secured(windowsOptions={"hostProcess": True}),
    "a probe of another host": inside(livenessProbe={"httpGet": {"host": "10.0.0.1", "port": 1}}),
}


RESTRICTED = {
    "root": pod_secured(runAsUser=0),
    "root in a container": secured(runAsUser=0),
    "perhaps root": secured(runAsNonRoot=False),
    "escalation": secured(allowPrivilegeEscalation=True),
    "capabilities kept": secured(capabilities={"drop": ["NET_RAW"]}),
    "a capability of the baseline": secured(capabilities={"drop": ["ALL"], "add": ["CHOWN"]}),
    "an NFS volume": template(volumes=[{"name": "data", "nfs": {"server": "a", "path": "/"}}]),
}
