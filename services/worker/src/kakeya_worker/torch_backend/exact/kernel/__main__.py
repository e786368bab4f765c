"""`python -m kakeya_worker.torch_backend.exact.kernel` builds the library; see `build`."""

import sys

from kakeya_worker.torch_backend.exact.kernel.build import main

sys.exit(main())
