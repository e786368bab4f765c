-- Who is first in the line at each worker that takes sessions.
-- KEYS    queue, waiters, usage, then workers
-- ARGV    may_clear (0: a waiter whose lease has lapsed still counts)
-- returns {{worker_id, waiter_id, has_room (1 or 0)}, ...} for workers that somebody waits for
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {}
end
local workers, rooms = {}, {}
for i = 4, #KEYS do
  local worker = redis.call('HMGET', KEYS[i],
    'incarnation', 'fingerprint', 'worker_id', 'slab_bytes', 'reserved_bytes', 'lane_bytes', 'model', 'snapshot_store',
    'model_digest')
  if worker[1] and not is_draining(KEYS[i]) then
    workers[#workers + 1] = {worker[1], worker[2] or '', worker[7], worker[8], worker[9]}
    rooms[#rooms + 1] = {worker[3], worker[4] - worker[5] >= tonumber(worker[6])}
  end
end
local turns = {}
for i, first in ipairs(first_in_line(KEYS[1], KEYS[2], KEYS[3], workers, now_ms(), ARGV[1] == '1')) do
  if first then
    turns[#turns + 1] = {rooms[i][1], first[3], rooms[i][2] and 1 or 0}
  end
end
return turns
