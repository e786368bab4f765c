"""`python -m kakeya_router` is `kakeya router`."""

import sys

from kakeya_router.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
