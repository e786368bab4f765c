-- The registered workers of a pool.
-- key workers
-- arg worker: what the key of a worker begins with; its id follows
-- arg fields...: that are wanted of each; none: all
-- returns {{worker id, {value, ...}}, ...}, or where all are wanted {{worker id, {field, value, ...}}, ...}
local found = {}
for i, worker_id in ipairs(redis.call('ZRANGE', key.workers, 0, -1)) do
  local worker = arg.worker .. worker_id
  local values = arg.fields[1] and redis.call('HMGET', worker, unpack(arg.fields)) or redis.call('HGETALL', worker)
  found[i] = {worker_id, values}
end
return found
