-- Takes waiters whose lease has lapsed out of the line, at most once a second.
-- KEYS    queue, waiters
-- ARGV    nothing
-- returns how many
local num_purged = purge(KEYS[1], KEYS[2], now_ms())
if num_purged > 0 then
  announce_room(KEYS[1])
end
return num_purged
