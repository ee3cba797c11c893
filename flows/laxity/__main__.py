"""The console script `laxity`: Control-C while the command line is still being imported ends it."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    try:
        from laxity.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)  # exit_codes.INTERRUPTED, which may not be imported yet
    run()


if __name__ == "__main__":
    main()
