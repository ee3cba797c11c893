"""Pack the kubectl plugin for krew: an archive with one executable, and its manifest.

usage: pack.py FOLDER ADDRESS     ADDRESS is where the archive will be downloaded from
"""

import hashlib
import io
import sys
import tarfile
import tempfile
import zipapp
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = next(
    line.split('"')[1]
    for line in (ROOT / "pyproject.toml").read_text().splitlines()
    if line.startswith("version = ")
)
MANIFEST = """\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: laxity
spec:
  version: v{version}
  shortDescription: Show deadlines, promises and offers of training Jobs
  description: |
    Shows what laxity decided about Jobs: verdicts, reasons, P90 finishes and counter-offers.
    It reads labels, annotations and Events with your own rights. It needs Python 3.11 or newer.
  platforms:
    - selector:
        matchExpressions:
          - {{key: os, operator: In, values: [linux, darwin]}}
      uri: {address}
      sha256: {sha256}
      bin: kubectl-laxity
"""


def build_executable() -> bytes:
    """The plugin as one file that Python runs."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "laxity")
        (package / "cli").mkdir(parents=True)
        (package / "__init__.py").touch()
        for name in ("names.py", "cli/__init__.py", "cli/kubectl_plugin.py"):
            (package / name).write_bytes((ROOT / "flows/laxity" / name).read_bytes())
        packed = io.BytesIO()
        main = "import sys\nfrom laxity.cli.kubectl_plugin import main\nsys.exit(main())\n"
        Path(folder, "__main__.py").write_text(main)
        zipapp.create_archive(folder, packed, interpreter="/usr/bin/env python3")
        return packed.getvalue()


def main(folder: Path, address: str) -> None:
    archive = folder / "kubectl-laxity.tar.gz"
    folder.mkdir(exist_ok=True)
    with tarfile.open(archive, "w:gz") as file:
        for name, data in (
            ("kubectl-laxity", build_executable()),
            ("LICENSE", (ROOT / "LICENSE").read_bytes()),
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if name == "kubectl-laxity" else 0o644
            file.addfile(entry, io.BytesIO(data))
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    manifest = MANIFEST.format(version=VERSION, address=address, sha256=sha256)
    (folder / "laxity.yaml").write_text(manifest)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
