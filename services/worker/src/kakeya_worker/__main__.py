"""`python -m kakeya_worker` is `kakeya worker`."""

import sys

from kakeya_worker.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
