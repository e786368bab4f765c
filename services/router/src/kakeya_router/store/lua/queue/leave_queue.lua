-- Takes a waiter out of the queue.
-- key queue, waiters
-- arg waiter_id
-- returns nothing
leave_queue()
