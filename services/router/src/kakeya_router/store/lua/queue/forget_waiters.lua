-- Takes waiters whose lease has lapsed out of the line, at most once a second.
-- key queue, waiters
-- returns how many
local num_purged = purge(key.queue, key.waiters, now_ms())
if num_purged > 0 then
  announce_room(key.queue)
end
return num_purged
