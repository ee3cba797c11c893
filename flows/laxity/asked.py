"""The Jobs that `submit` and `whatif` speak of: from a file, or from a function and options."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from laxity import names
from laxity.exits import USAGE, CommandError
from laxity.views import Json

OPTION: Final = {
    names.DEADLINE: "deadline",
    names.CLASS: "service_class",
    names.WIDTHS: "workers",
    names.EPOCHS: "epochs",
    names.MODEL: "model",
    names.EPOCH_ESTIMATE: "epoch_estimate",
    names.IDEMPOTENCY_KEY: "idempotency_key",
}
MANIFEST_ENDINGS: Final = (".yaml", ".yml", ".json")


def asked_jobs(
    source: str,
    given: Mapping[str, str | None],
    *,
    name: str | None,
    namespace: str | None,
    params: Sequence[str],
) -> list[Json]:
    """Manifests; `given` are annotations from options (None: not given), which win over a file's."""
    if not is_entry(source):
        from laxity.manifest import changed, read_jobs

        if params:
            raise CommandError(f"--param is for functions; {source} is a file of Jobs", code=USAGE)
        jobs = read_jobs(source)
        if name and len(jobs) > 1:
            raise CommandError(f"--name for {len(jobs)} Jobs: they need one each", code=USAGE)
        return [changed(job, given, name=name, namespace=namespace) for job in jobs]
    return [_entry_job(source, given, name=name, namespace=namespace, params=params)]


def is_entry(source: str) -> bool:
    """Whether it names a function: package.module:function or file.py:function."""
    if source == "-" or source.endswith(MANIFEST_ENDINGS) or os.path.lexists(source):
        return False
    module, colon, function = source.rpartition(":")
    return bool(module and colon) and all(part.isidentifier() for part in function.split("."))


def parameters(pairs: Sequence[str]) -> Json:
    """KEY=VALUE pairs; a value is JSON where it is JSON, text otherwise."""
    found: Json = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise CommandError(f"--param {pair!r} is not KEY=VALUE", code=USAGE)
        found[key] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _entry_job(
    source: str,
    given: Mapping[str, str | None],
    *,
    name: str | None,
    namespace: str | None,
    params: Sequence[str],
) -> Json:
    """The Job of a function: what it declares if it is a deadline_flow, changed by the options."""
    from laxity.declaration import Declaration, entry_of
    from laxity.flow import bound
    from laxity.qos import QoSError

    function, declared = _loaded(source)
    options: Json = {OPTION[key]: value for key, value in given.items() if value is not None}
    if namespace:
        options["namespace"] = namespace
    if "epochs" in options:
        options["epochs"] = int(options["epochs"])
    try:
        declared = declared or Declaration.of(function.__name__.replace("_", "-"), {})
        declared = declared.changed(name=name, **options)
        arguments = bound(function, (), parameters(params))
        entry, env = entry_of(function)
        spec = declared.spec(
            entry=entry,
            parameters=arguments,
            idempotency_key=declared.idempotency_key(arguments, ""),
            env=env,
        )
    except (QoSError, TypeError) as error:
        raise CommandError(f"{source}: {error}", code=USAGE) from error
    if not name:
        return spec.to_manifest()
    return replace(spec, name=name).to_manifest()


def _loaded(source: str) -> tuple[Callable[..., Any], Any]:
    """The function and, if it is a deadline_flow, its declaration; Prefect is not imported."""
    from laxity.flow import ENV_ALONE

    module_name, _, path = source.rpartition(":")
    os.environ[ENV_ALONE] = "1"
    try:
        found: Any = _module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, OSError, SyntaxError) as error:
        raise CommandError(f"{source}: {error}", code=USAGE) from error
    finally:
        del os.environ[ENV_ALONE]
    return getattr(found, "function", found), getattr(found, "__laxity__", None)


def _module(name: str) -> ModuleType:
    """A module by its file, or by its dotted name as seen from the working folder."""
    if not name.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return import_module(name)
    path = Path(name).resolve()
    # named as Prefect names what it loads by path: so a worker too finds it by its file
    spec = spec_from_file_location(f"__prefect_loader_{path.stem}__", path)
    if spec is None or spec.loader is None or not path.exists():
        raise ImportError(f"no file {path}")
    module = module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module
