"""`python -m kakeya_worker` is `kakeya worker`."""

import os
import sys
from contextlib import suppress

from kakeya_worker.command import main

if __name__ == "__main__":
    status = main(sys.argv[1:])
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(status)  # all is put away; for the interpreter to take apart what a backend has loaded takes half a second
