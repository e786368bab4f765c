-- Who is first in the queue at each worker that takes sessions.
-- key queue, waiters, usage
-- key workers...
-- arg may_clear: 0: a waiter whose lease has lapsed still counts
-- returns {{worker_id, waiter_id, has_room (1 or 0)}, ...} for workers that a session waits for
if redis.call('EXISTS', key.queue) == 0 then
  return {}
end
local workers, rooms = {}, {}
for _, name in ipairs(key.workers) do
  local worker = redis.call('HMGET', name, 'worker_id', 'slab_bytes', 'reserved_bytes', 'lane_bytes')
  if worker[1] and not takes_nobody(name) then
    workers[#workers + 1] = offer_of(name)
    rooms[#rooms + 1] = {worker[1], worker[2] - worker[3] >= tonumber(worker[4])}
  end
end
local turns = {}
for i, first in ipairs(first_in_queue(workers, now_ms())) do
  if first then
    turns[#turns + 1] = {rooms[i][1], first[3], rooms[i][2] and 1 or 0}
  end
end
return turns
