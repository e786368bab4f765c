"""`python -m kakeya_http_shim` is `kakeya http`."""

import sys

from kakeya_http_shim.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
