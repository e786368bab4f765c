-- Takes waiters whose lease has lapsed out of the queue, at most once a second.
-- key queue, waiters
-- returns how many
local num_purged = purge(now_ms())
if num_purged > 0 then
  announce_room()
end
return num_purged
