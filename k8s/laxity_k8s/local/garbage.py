"""What a finished job leaves behind is kept for some days and then removed: rows, folders, logs."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from laxity import json_tree
from laxity.instants import instant_at
from laxity_k8s.local.kubelet import LocalConfig
from laxity_k8s.local.object_store import ObjectStore
from laxity_k8s.objects.conditions import end_instant

EVENTS_S = 3600.0


def collect_garbage(rows: ObjectStore, config: LocalConfig, *, keep_s: float, now: float) -> int:
    """Remove what is older than `keep_s`; how many Jobs and folders were removed."""
    with rows.write_together():  # nobody takes the name of one of them in between
        old = [job for job in rows.list_objects("jobs").items if end_instant(job) + keep_s <= now]
        for job in old:
            rows.remove("jobs", json_tree.object_id(job))
    for event in rows.list_objects("events").items:
        created_at = instant_at(json_tree.get_in(event, "metadata", "creationTimestamp"))
        if created_at is None or created_at + EVENTS_S <= now:
            rows.remove("events", json_tree.object_id(event))
    rows.compact()
    return len(old) + _remove_folders(rows, config, now - keep_s)


def _remove_folders(rows: ObjectStore, config: LocalConfig, before: float) -> int:
    jobs = rows.list_objects("jobs").items
    in_use = {config.checkpoint_folder(job) for job in jobs}
    removed = 0
    for path in _find_old(config.home / "checkpoints", "*/*", before):
        if path not in in_use:
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
    logs = {config.log_path(json_tree.object_id(job), 0).name.rpartition("_")[0] for job in jobs}
    for path in _find_old(config.home / "logs", "*", before):
        if path.name.rpartition("_")[0] not in logs:
            path.unlink(missing_ok=True)
    return removed


def _find_old(folder: Path, pattern: str, before: float) -> Iterator[Path]:
    for path in folder.glob(pattern):
        if path.stat().st_mtime <= before:
            yield path
