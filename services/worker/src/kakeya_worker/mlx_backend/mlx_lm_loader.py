"""mlx-lm's loader, imported without what else its module does.

That lowers the process's limit of open files, which connections need; nobody but root could raise it again.
"""

import resource

_set_limit = resource.setrlimit
resource.setrlimit = lambda *_: None
try:
    from mlx_lm.utils import load_model
finally:
    resource.setrlimit = _set_limit

__all__ = ["load_model"]
