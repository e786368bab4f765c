"""`python -m kakeya`."""

import sys

from kakeya.cli.main import main

sys.exit(main())
