"""Tasks that outlive the call that started them."""

from kakeya_shared.process.detached_tasks import DetachedTasks, Outcome, unheard

__all__ = ["DetachedTasks", "Outcome", "unheard"]
