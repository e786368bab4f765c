-- The registered workers of a pool.
-- key workers
-- arg worker: what the key of a worker begins with; its id follows
-- returns {{field, value, ...}, ...}
local found = {}
for i, worker_id in ipairs(redis.call('ZRANGE', key.workers, 0, -1)) do
  found[i] = redis.call('HGETALL', arg.worker .. worker_id)
end
return found
