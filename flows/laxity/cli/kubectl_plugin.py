"""`kubectl laxity get | explain | offers | whatif`: what laxity decided, with kubectl's own rights.

The first three read labels, annotations and Events of Jobs, and need no service. `whatif` asks the
service at LAXITY_URL, else the one in namespace `laxity` through a port-forward, with LAXITY_TOKEN
or the token of its secret.
Flags that are not known here (-n, -A, --context, --kubeconfig) go to kubectl. This file needs the
standard library and `laxity.names` only: the krew archive holds nothing else.
"""

import argparse
import base64
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from laxity import names

Json = dict[str, Any]
SERVICE_NAMESPACE: Final = "laxity"
FORWARDED: Final = re.compile(r"127\.0\.0\.1:(\d+)")
REFUSED: Final = 3  # as `laxity whatif` ends
INTERRUPTED: Final = 130  # as a shell shows what Control-C ended
GLOBAL_FLAGS: Final = ("--context", "--kubeconfig", "--cluster", "--user")
VALUED_FLAGS: Final = ("-n", "--namespace", *GLOBAL_FLAGS)  # the next argument belongs to them


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code of a shell."""
    parser = argparse.ArgumentParser(prog="kubectl laxity", description=__doc__)
    parser.add_argument("command", choices=COMMANDS, help="what to show")
    parser.add_argument("name", nargs="?", default="", help="a Job; for whatif a manifest")
    ours, valued = _split_flags(sys.argv[1:] if arguments is None else arguments)
    options, flags = parser.parse_known_intermixed_args(ours)
    if options.command != "get" and not options.name:
        parser.error(
            f"{options.command} needs a {'file' if options.command == 'whatif' else 'Job'}"
        )
    try:
        return COMMANDS[options.command](options.name, [*valued, *flags])
    except subprocess.CalledProcessError as error:
        sys.stderr.write(error.stderr or "")
        return error.returncode
    except (OSError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _split_flags(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """All other arguments, and kubectl's flags that have a value of their own, each before its value."""
    others: list[str] = []
    valued: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in VALUED_FLAGS:
            valued += [argument, *islice(rest, 1)]
        else:
            others.append(argument)
    return others, valued


def get(name: str, flags: Sequence[str]) -> int:
    """Jobs of laxity with verdict, the deadlines asked for and promised, and P90 finish."""
    which = [name] if name else ["-l", f"{names.MANAGED}=true"]
    where = ["NAMESPACE:.metadata.namespace"] if {"-A", "--all-namespaces"} & set(flags) else []
    columns = [
        *where,
        "NAME:.metadata.name",
        f"VERDICT:{_column_path('labels', names.VERDICT_LABEL)}",
        f"CLASS:{_column_path('labels', names.CLASS_LABEL)}",
        "SUSPENDED:.spec.suspend",
        "WORKERS:.spec.parallelism",
        f"DEADLINE:{_column_path('annotations', names.DEADLINE)}",
        f"PROMISED:{_column_path('annotations', names.PROMISED_DEADLINE)}",
        f"P90:{_column_path('annotations', names.P90_FINISH)}",
    ]
    table = _kubectl_program(
        "get", "jobs", *which, "-o", f"custom-columns={','.join(columns)}", *flags
    )
    sys.stdout.write(table)
    if any(line.split()[len(where) + 1] == "<none>" for line in table.splitlines()[1:]):
        sys.stderr.write("some have no verdict: kubectl laxity explain NAME says more\n")
    return 0


def explain(name: str, flags: Sequence[str]) -> int:
    """Why a Job is where it is: its verdict, reason and instants, then laxity's Events."""
    metadata = _get_job(name, flags)["metadata"]
    labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
    lines = [
        ("verdict", labels.get(names.VERDICT_LABEL) or _none_yet(metadata)),
        ("reason", annotations.get(names.REASON)),
        ("deadline", annotations.get(names.PROMISED_DEADLINE) or annotations.get(names.DEADLINE)),
        ("refused", _describe_refused(annotations)),
        ("P50 finish", annotations.get(names.P50_FINISH)),
        ("P90 finish", annotations.get(names.P90_FINISH)),
    ]
    _print_lines(f"{title + ':':<12}{text}" for title, text in lines if text)
    about = f"involvedObject.uid={metadata['uid']},source=laxity"  # not of a Job that had its name
    columns = "LAST:.lastTimestamp,COUNT:.count,REASON:.reason,MESSAGE:.message"
    shown = ["-o", f"custom-columns={columns}", "--sort-by=.lastTimestamp"]
    sys.stdout.write(_kubectl_program("get", "events", "--field-selector", about, *shown, *flags))
    return 0


def _describe_refused(annotations: Mapping[str, str]) -> str:
    """The deadline that was refused while the promise stands, and why."""
    refused = json.loads(annotations.get(names.REFUSED_DEADLINE, "{}"))
    return f"{refused['deadline']}, asked again: {refused['reason']}" if refused else ""


def _none_yet(metadata: Json) -> str:
    """What to look at where no verdict comes: without rights laxity can write nothing on the Job."""
    if names.PIN in metadata.get("annotations", {}):
        return "none while it is pinned"
    return (
        "none yet. If none comes, see that the service runs, and that laxity has rights here: "
        f"kubectl -n {metadata['namespace']} create rolebinding laxity --clusterrole=laxity-namespace "
        f"--serviceaccount={SERVICE_NAMESPACE}:laxity"
    )


def offers(name: str, flags: Sequence[str]) -> int:
    """What would be promised instead of a refused Job, as commands to copy."""
    job = _get_job(name, flags)
    verdict = json.loads(job["metadata"].get("annotations", {}).get(names.VERDICT, "{}"))
    namespace = job["metadata"]["namespace"]
    commands = [
        f"kubectl -n {namespace} annotate job {name} --overwrite {taken}"
        for offer in verdict.get("offers", ())
        if (taken := offer_annotation(offer))
    ]
    _print_lines(commands or [f"job {name} has no offers that an annotation could take"])
    return 0


def offer_annotation(offer: Mapping[str, Any]) -> str:
    """The annotation that takes this offer; "" for one that is no annotation."""
    if offer["kind"] == "deadline":
        deadline = time.gmtime(-(-float(offer["deadline_at"]) // 1))  # up to the next second
        return f"{names.DEADLINE}={time.strftime('%Y-%m-%dT%H:%M:%SZ', deadline)}"
    if offer["kind"] == "widths":
        return f"{names.WIDTHS}={','.join(map(str, offer['widths']))}"
    if offer["kind"] == "lent":
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(float(offer["p50_at"])))
        borrowed = f"borrowed GPUs: {offer['gpus_borrowed']}"
        return f"{names.CLASS}=soft  # {borrowed}; likely end: {end}; a forecast, no promise"
    return f"{names.CLASS}=soft" if offer["kind"] == "soft" else ""


def whatif(file: str, flags: Sequence[str]) -> int:
    """The verdict that the Job of this file would get now; 3 for a refusal. Nothing is created."""
    job = json.loads(
        _kubectl_program("create", "--dry-run=client", "-o", "json", "-f", file, *flags)
    )
    flags = _cluster_flags(flags)
    with port_forward(flags) as url:
        request = urllib.request.Request(  # noqa: S310 - http to a service that the user named
            f"{url}/v1/whatif",
            data=json.dumps(job).encode(),
            headers={
                "Authorization": f"Bearer {_find_token(flags)}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310 - the same
                answer = json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(_problem_text(error)) from error
    _print_lines([f"{answer['verdict']}: {answer['reason']}"])
    for offer in answer.get("offers", ()):
        _print_lines([f"instead: {taken}"] if (taken := offer_annotation(offer)) else [])
    return REFUSED if answer["verdict"] == "refused" else 0


def _problem_text(error: urllib.error.HTTPError) -> str:
    """The message of an answer in the service's form; of any other, all that it says."""
    body = error.read().decode(errors="replace")
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"laxity answers {error.code}: {body}"


@contextmanager
def port_forward(flags: Sequence[str]) -> Iterator[str]:
    """LAXITY_URL, else an address on this machine that leads to the service in this block."""
    if url := os.environ.get(names.ENV_URL):
        yield url.rstrip("/")
        return
    words = ["-n", SERVICE_NAMESPACE, "port-forward", "service/laxity", ":8642"]
    command = ["kubectl", *words, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:
        try:
            line = it.stdout.readline() if it.stdout else ""
            if (port := FORWARDED.search(line)) is None:
                problem = it.stderr.read().strip() if it.stderr else ""
                raise ValueError(f"the service cannot be reached: {problem}")
            yield f"http://127.0.0.1:{port[1]}"
        finally:
            it.terminate()


def _find_token(flags: Sequence[str]) -> str:
    """LAXITY_TOKEN, else that of the secret, for those who may read it."""
    if token := os.environ.get(names.ENV_TOKEN):
        return token
    secret = ["secret", "laxity", "-o", f"jsonpath={{.data.{names.ENV_TOKEN}}}"]
    return base64.b64decode(
        _kubectl_program("-n", SERVICE_NAMESPACE, "get", *secret, *flags)
    ).decode()


def _cluster_flags(flags: Sequence[str]) -> list[str]:
    """Those flags that say which cluster, without those that say which namespace."""
    flags_of_kubectl: list[str] = []
    for number, flag in enumerate(flags):
        if flag.startswith(GLOBAL_FLAGS):
            flags_of_kubectl += [flag] if "=" in flag else list(flags[number : number + 2])
    return flags_of_kubectl


def _get_job(name: str, flags: Sequence[str]) -> Json:
    job: Json = json.loads(_kubectl_program("get", "job", name, "-o", "json", *flags))
    return job


def _kubectl_program(*words: str) -> str:
    return subprocess.run(["kubectl", *words], check=True, capture_output=True, text=True).stdout


def _column_path(part: str, name: str) -> str:
    """Of a label or an annotation, for custom-columns."""
    return f".metadata.{part}.{name.replace('.', chr(92) + '.')}"


def _print_lines(lines: Any) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


COMMANDS: Final = {"get": get, "explain": explain, "offers": offers, "whatif": whatif}

if __name__ == "__main__":
    sys.exit(main())
