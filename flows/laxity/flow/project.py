"""What a worker gets of its submitter's project: working directory, import path, environment.

The service starts workers, but they are to run as the user would run the training. So a Job that
runs on this machine carries:

- the submitter's working directory, as `workingDir`;
- what the submitter's `sys.path` has beyond the interpreter's own folders, as PYTHONPATH;
- the variables of `TAKEN`, and those that the user names with `pass_env`.

Slurm exports everything and SkyPilot nothing that is not named. Everything would put secrets into
the Job, where others may read them; nothing would lose CUDA_VISIBLE_DEVICES and OMP_NUM_THREADS, and
the training would differ from the one that was tried by hand. A variable that looks like a secret is
passed only if its whole name is given. With an image the image is the project: its folder and its
environment count, and only named variables are added.
"""

import copy
import os
import re
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from laxity import names
from laxity.job.pod_template import RESERVED_ENV, escape_literal
from laxity.job.qos import QoSError
from laxity.stderr import say
from laxity.worker.code.entrypoint import package_of
from laxity.worker.launcher import VARIABLES

TAKEN: Final = (
    # the user and the machine
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TMPDIR",
    "XDG_*", "LD_LIBRARY_PATH", "LD_PRELOAD", "DO_NOT_TRACK",
    # the interpreter
    "PYTHON*", "VIRTUAL_ENV", "CONDA_*",
    # accelerators and threads
    "CUDA_*", "NVIDIA_*", "ROCR_*", "HIP_*", "HSA_*", "NCCL_*", "GLOO_*",
    "OMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "NUMEXPR_*",
    # libraries
    "TORCH*", "PYTORCH_*", "TF_CPP_*", "TF_FORCE_*", "TF_GPU_*", "TF_XLA_*", "XLA_*", "JAX_*", "KERAS_*", "HF_*", "TRANSFORMERS_*",
    "TOKENIZERS_*", "MLFLOW_*", "PREFECT_*", "WANDB_*", "MPL*",
    # the network
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "SSL_CERT_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    names.ENV_SAVING_SHARE,
)  # fmt: skip
# Where the service logs a training, and which flow run submits it, is not the project's to say.
LEFT: Final = (
    "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_*", "PREFECT__*", "PYTHONSTARTUP",
    "TORCHELASTIC_*",
)  # fmt: skip
IN_IMAGE: Final = (
    "the workers look for {place} in their image; if it is not there, say where it is: "
    "entry='package.module:function'"
)
_SECRET_WORD: Final = re.compile(
    r"TOKENS?|SECRETS?|PASS(WORD|WD|PHRASE)?|PAT|AUTH|CREDENTIALS?|.*(TOKEN|SECRET|PASSWORD|KEYS?)"
)
_SECRET_URL: Final = re.compile(r"://[^/@\s]*:[^/@\s]+@")
_PATTERN: Final = re.compile(r"[A-Za-z0-9_*?\[\]!-]+")


@dataclass(frozen=True, slots=True)
class Project:
    """How a worker finds the training function, and in which folder and environment it runs."""

    entry: str
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


def project_of(
    function: Callable[..., Any],
    *,
    entry: str | None = None,
    pass_env: Iterable[str] = (),
    has_image: bool = False,
) -> Project:
    """The project of this process, for a function of it. QoSError if no worker could import it.

    `entry` is where the user says that the function is.
    """
    place, root = (entry, None) if entry else _locate_entry(function)
    if has_image:
        if not entry and place.startswith("/"):
            say(IN_IMAGE.format(place=place))
        return Project(place, env=pass_to_image(pass_env))
    path = import_path()
    if root is not None and str(root) not in path:
        path.append(str(root))
    env = worker_variables(os.environ, pass_env=pass_env)
    if path:
        env["PYTHONPATH"] = os.pathsep.join(path)
    return Project(place, str(Path.cwd()), _literal_values(env))


def with_project(manifest: Mapping[str, Any], *, pass_env: Iterable[str] = ()) -> dict[str, Any]:
    """A Job of a file with the project of this process, unless its container has an image.

    What the file says wins.
    """
    job = copy.deepcopy(dict(manifest))
    try:
        container = job["spec"]["template"]["spec"]["containers"][0]
        own = {row["name"] for row in container.setdefault("env", [])}
        has_image = bool(container.get("image"))
    except (KeyError, IndexError, TypeError, AttributeError):
        return job  # the service says what is wrong with it
    if has_image:
        env = pass_to_image(pass_env)
    else:
        container.setdefault("workingDir", str(Path.cwd()))
        env = _literal_values(worker_variables(os.environ, pass_env=pass_env))
    container["env"] += [
        {"name": name, "value": value} for name, value in env.items() if name not in own
    ]
    return job


def worker_variables(environ: Mapping[str, str], *, pass_env: Iterable[str] = ()) -> dict[str, str]:
    """The variables that a worker gets of these."""
    wanted = tuple(pass_env)
    return {
        name: value
        for name, value in environ.items()
        if name not in RESERVED_ENV
        and (name in wanted or (_is_taken(name, wanted) and not is_secret(name, value)))
    }


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable looks like a secret, by a word of its name or a password in a URL."""
    parts = name.upper().split("_")
    return any(map(_SECRET_WORD.fullmatch, parts)) or _SECRET_URL.search(value) is not None


def check_patterns(patterns: object) -> None:
    """QoSError unless these are names of variables, with or without wildcards."""
    if isinstance(patterns, str) or not isinstance(patterns, Iterable):
        raise QoSError("pass_env", f"{patterns!r:.60} is no list of names; write ('FOO', 'DATA_*')")
    for pattern in patterns:
        if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):
            raise QoSError(
                "pass_env", f"{pattern!r:.60} is no name of a variable; write FOO or FOO_*"
            )
        if pattern in RESERVED_ENV:
            raise QoSError("pass_env", f"{pattern} is written by laxity itself; leave it out")


def import_path() -> list[str]:
    """What `sys.path` has beyond the folders that this interpreter knows by itself."""
    installed = {
        sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    installed |= {*site.getsitepackages(), site.getusersitepackages()}
    scripts = sysconfig.get_path("scripts")
    folders = (str(Path(entry).absolute()) for entry in sys.path)
    return [
        folder
        for folder in dict.fromkeys(folders)
        if Path(folder).exists()
        and folder != scripts
        and not any(Path(folder).is_relative_to(root) for root in installed)
    ]


def _is_taken(name: str, wanted: Iterable[str]) -> bool:
    if name in VARIABLES:  # of the launcher that this process runs under
        return False
    if any(fnmatchcase(name, pattern) for pattern in wanted):
        return True
    taken = any(fnmatchcase(name, pattern) for pattern in TAKEN)
    return taken and not any(fnmatchcase(name, pattern) for pattern in LEFT)


def pass_to_image(patterns: Iterable[str]) -> dict[str, str]:
    wanted = tuple(patterns)
    for name in wanted:
        if is_secret(name, os.environ.get(name, "")):
            raise QoSError(
                "pass_env",
                f"{name} looks like a secret and would stand readable in the Job; put it into a "
                "Kubernetes Secret and name that: template={'envFrom': [{'secretRef': ...}]}",
            )
    named = (name for name in os.environ if any(fnmatchcase(name, pattern) for pattern in wanted))
    return _literal_values(
        worker_variables({name: os.environ[name] for name in named}, pass_env=wanted)
    )


def _literal_values(env: Mapping[str, str]) -> dict[str, str]:
    """As Kubernetes hands them on unchanged."""
    return {name: escape_literal(value) for name, value in env.items()}


def _locate_entry(function: Callable[..., Any]) -> tuple[str, Path | None]:
    """The entry, and the folder from which a package is imported if it was loaded by its path."""
    name, module = function.__qualname__, function.__module__
    if "<" in name:
        raise QoSError("entry", f"{name} is no function of a module: a worker could not import it")
    loaded = sys.modules.get(module)
    file = Path(getattr(loaded, "__file__", None) or function.__code__.co_filename).resolve()
    if module == "__main__" and (spec := getattr(loaded, "__spec__", None)) is not None:
        return f"{spec.name}:{name}", None  # python -m package.module
    if module != "__main__" and not _is_by_path(module, loaded, file):
        return f"{module}:{name}", None
    if not file.exists():
        raise QoSError(
            "entry",
            f"{name} stands in no file (a notebook, or an interactive session): a worker could not "
            "import it; write it into a .py file and import it from there, such as with a cell that "
            f"begins with %%writefile flows.py, then from flows import {name}",
        )
    package = package_of(file) if module != "__main__" else None
    if package is not None:
        return f"{package[1]}:{name}", package[0]
    return f"{file}:{name}", None


def _is_by_path(module: str, loaded: ModuleType | None, file: Path) -> bool:
    """Whether Prefect, or `laxity submit`, loaded this file by its path and not by its name."""
    if module.startswith("__prefect_loader"):
        return True
    return hasattr(loaded, "__path__") and file.name != "__init__.py"
