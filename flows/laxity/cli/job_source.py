"""The Jobs that `submit` and `whatif` speak of: from a file, or from a function and options."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from laxity import names
from laxity.api.job_view import Json
from laxity.cli.exit_codes import USAGE, CommandError
from laxity.stderr import say

if TYPE_CHECKING:
    from laxity.flow.declaration import Declaration
    from laxity.flow.script import Script
    from laxity.job.qos import QoSError

OPTION: Final = {
    names.DEADLINE: "deadline",
    names.CLASS: "service_class",
    names.WIDTHS: "workers",
    names.EPOCHS: "epochs",
    names.MODEL: "model",
    names.EPOCH_ESTIMATE: "epoch_estimate",
    names.WALL_LIMIT: "wall_limit",
    names.LAUNCHER: "launcher",
    names.RESTARTS: "restarts",
    names.IDEMPOTENCY_KEY: "idempotency_key",
    names.FRESH: "fresh",
    names.FREEZE: "freeze",
}
FLAG: Final = {  # the others have their field's name
    "service_class": "--class",
    "epoch_estimate": "--estimate",
    "idempotency_key": "--key",
}
PLAIN: Final = {"workers": 1}  # of a function without deadline_flow, whose default it is too
MANIFEST_ENDINGS: Final = (".yaml", ".yml", ".json")
SCRIPT_ENDINGS: Final = (".py", ".py:")


def option_annotations(*options: str | int | None) -> dict[str, str | None]:
    """Annotations from options, which are given in the order of OPTION; None: not given."""
    texts = (None if option is None else str(option) for option in options)
    annotations = dict(zip(OPTION, texts, strict=False))
    deadline = annotations[names.DEADLINE]
    return annotations | {names.DEADLINE: deadline and zoned_deadline(deadline)}


def zoned_deadline(deadline: str) -> str:
    """The option --deadline for a service elsewhere: a time by the clock with the zone of here."""
    from laxity.durations import with_local_zone

    try:
        return with_local_zone(deadline)
    except ValueError as error:
        raise CommandError(f"--deadline {deadline}: {error}", code=USAGE) from error


def job_manifests(
    source: str,
    given: Mapping[str, str | None],
    *,
    name: str | None,
    namespace: str | None,
    params: Sequence[str],
    pass_env: Sequence[str] = (),
) -> list[Json]:
    """Manifests; `given` are annotations from options (None: not given), which win over a file's."""
    name = name and _job_label(name)
    if not source or source.endswith(SCRIPT_ENDINGS):
        place = source.rstrip(":") or "train.py"
        message = f"{source!r} names no function; write {place}:FUNCTION, or a file of Jobs"
        raise CommandError(message, code=USAGE)
    if not is_entry(source):
        from laxity.cli.group_files import with_steps
        from laxity.cli.job_files import read_jobs, with_annotations

        if params:
            raise CommandError(f"--param is for functions; {source} is a file of Jobs", code=USAGE)
        jobs = with_steps(read_jobs(source))
        if name and len(jobs) > 1:
            raise CommandError(f"--name for {len(jobs)} Jobs: they need one each", code=USAGE)
        keyed = [(job, _with_own_key(given, job, among=len(jobs))) for job in jobs]
        changes = (with_annotations(job, own, name=name, namespace=namespace) for job, own in keyed)
        return [_in_project(job, source, pass_env) for job in changes]
    options: Json = {OPTION[key]: value for key, value in given.items() if value is not None}
    if namespace:
        options["namespace"] = namespace
    if pass_env:
        options["pass_env"] = tuple(pass_env)
    return [_entry_job(source, options, name=name, params=params)]


def _job_label(name: str) -> str:
    """The name as a Job may have it, as the name of a function becomes one, too."""
    from laxity.job.spec import dns_label

    label = dns_label(name)
    if label and label != name:
        say(f"--name {name}: the Job is called {label}, since names of Jobs are a-z, 0-9 and '-'")
    return label or name


def _with_own_key(
    given: Mapping[str, str | None], job: Json, *, among: int
) -> Mapping[str, str | None]:
    """The options for one Job of several: a key that all shared would attach all to the first."""
    key = given.get(names.IDEMPOTENCY_KEY)
    if key is None or among == 1:
        return given
    metadata = job["metadata"]
    name = metadata.get("name") or metadata["generateName"]
    return {**given, names.IDEMPOTENCY_KEY: f"{key}/{name}"}


def is_entry(source: str) -> bool:
    """Whether it names a function: package.module:function or file.py:function."""
    if source == "-" or source.endswith(MANIFEST_ENDINGS) or os.path.lexists(source):
        return False
    module, colon, function = source.rpartition(":")
    return bool(module and colon) and all(part.isidentifier() for part in function.split("."))


def names_jobs(source: str) -> bool:
    """Whether it is meant as what `submit` takes, and not as the key of a model."""
    return is_entry(source) or source.endswith(MANIFEST_ENDINGS + SCRIPT_ENDINGS)


def _in_project(job: Json, source: str, pass_env: Sequence[str]) -> Json:
    from laxity.flow.project import check_patterns, with_project
    from laxity.job.qos import QoSError

    try:
        check_patterns(pass_env)
        return with_project(job, pass_env=pass_env)
    except QoSError as error:
        raise CommandError(f"{source}: {error}", code=USAGE) from error


def check_options(source: str, options: Json) -> None:
    """Tell what is wrong in the options alone before a file is imported, which can take seconds."""
    from laxity.flow.declaration import QOS_FIELDS
    from laxity.job.qos import QoS, QoSError

    asked = {key: options[key] for key in QOS_FIELDS if key in options}
    if asked.get("service_class") != "best_effort":
        asked.setdefault("deadline", "1h")  # the function may declare its own
    try:
        QoS.of(**asked)
    except QoSError as error:
        raise _usage_error(source, error, options) from error


def _usage_error(source: str, error: "QoSError", options: Json) -> CommandError:
    """The error by the option where one was given, else by the field."""
    problems = (
        f"{_flag_of(field) if field in options else field}: {problem}"
        for field, problem in error.problems
    )
    return CommandError(f"{source}: {'; '.join(problems)}", code=USAGE)


def _flag_of(field: str) -> str:
    return FLAG.get(field, f"--{field.replace('_', '-')}")


def _entry_job(source: str, options: Json, *, name: str | None, params: Sequence[str]) -> Json:
    """The Job of a function: what it declares if it is a deadline_flow, changed by the options."""
    from laxity.cli.call_arguments import arguments_of
    from laxity.cli.function_source import load_declared
    from laxity.flow.declaration import Declaration
    from laxity.flow.decorator import check_function
    from laxity.job.qos import QoSError

    check_options(source, options)
    function, declared = load_declared(source)
    try:
        check_function(function)
        options = _typed_options(options)
        declared = declared or Declaration.of(function.__name__.replace("_", "-"), PLAIN)
        before, declared = declared, declared.with_changes(name=name, **options)
        if before.qos.deadline is not None and declared.qos.deadline is None:
            say(f"best_effort has no deadline: {before.qos.deadline_text} is left out")
        return _called_job(function, declared, arguments_of(function, params), name=name)
    except QoSError as error:
        raise _usage_error(source, error, options) from error
    except TypeError as error:
        raise CommandError(f"{source}: {error}", code=USAGE) from error


def script_manifest(
    script: "Script", given: Mapping[str, str | None], *, name: str | None, **options: Any
) -> Json:
    """The Job that runs this script; `given` are annotations from options, as for `job_manifests`."""
    from laxity.flow.script import declare_script
    from laxity.job.qos import QoSError
    from laxity.worker.script import run_script

    name = name and _job_label(name)
    options |= {OPTION[key]: value for key, value in given.items()}
    options = {key: value for key, value in options.items() if value is not None}
    check_options(script.title, options)
    try:
        declared = declare_script(script, name, _typed_options(options))
        return _called_job(run_script, declared, script.arguments, name=name)
    except QoSError as error:
        raise _usage_error(script.title, error, options) from error


def _typed_options(options: Json) -> Json:
    """Options that are not texts, as what they are."""
    numbers = {key: int(options[key]) for key in ("epochs", "restarts") if key in options}
    return options | numbers | {key: True for key in ("fresh", "freeze") if key in options}


def _called_job(
    function: Callable[..., Any], declared: "Declaration", arguments: Json, *, name: str | None
) -> Json:
    """The Job of one call, by this name if it has one."""
    from laxity.job.parameters import to_json

    project, parameters = declared.project(function), to_json(function, arguments)
    spec = declared.spec(
        entry=project.entry,
        parameters=parameters,
        idempotency_key=declared.idempotency_key(arguments, parameters, ""),
        env=project.env,
        workdir=project.workdir,
    )
    return (replace(spec, name=name) if name else spec).to_manifest()
