-- Takes a waiter out of the line.
-- key queue, waiters
-- arg waiter_id
-- returns nothing
if leave_line(key.queue, key.waiters, arg.waiter_id) then
  announce_room(key.queue)
end
