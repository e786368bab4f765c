-- Reserves a lane for a new session, if its worker is alive and has the bytes.
-- KEYS    session, operation, worker, sessions, expiry, request
-- ARGV    session_id, op_id, router, lease_ms, request_ttl_ms (0: no request id),
--         then field, value, ... of the session record
-- returns {'reserved'}
--         {'duplicate', session_id} the request id was answered before, with that session
--         {'full'}                  the worker has not the bytes
--         {'gone'}                  the incarnation is not alive
local session_id, op_id, router, lease_ms, request_ttl_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if request_ttl_ms ~= '0' then
  local earlier = redis.call('GET', KEYS[6])
  if earlier then
    return {'duplicate', earlier}
  end
end
local record = {}
for i = 6, #ARGV, 2 do
  record[ARGV[i]] = ARGV[i + 1]
end
local worker = redis.call('HMGET', KEYS[3], 'incarnation', 'slab_bytes', 'reserved_bytes')
if worker[1] ~= record['incarnation'] then
  return {'gone'}
end
if worker[2] - worker[3] < tonumber(record['reserved_bytes']) then
  return {'full'}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], unpack(ARGV, 6))
redis.call('HSET', KEYS[1], 'idle_since_ms', now)
redis.call('HSET', KEYS[2], 'op_id', op_id, 'kind', 'create', 'router', router, 'lease_until_ms', now + lease_ms)
redis.call('HINCRBY', KEYS[3], 'reserved_bytes', record['reserved_bytes'])
redis.call('HINCRBY', KEYS[3], 'num_sessions', 1)
redis.call('SADD', KEYS[4], session_id)
-- Should this router vanish now, the reaper takes the session once the lease has lapsed.
redis.call('ZADD', KEYS[5], now + lease_ms, session_id)
if request_ttl_ms ~= '0' then
  redis.call('SET', KEYS[6], session_id, 'PX', request_ttl_ms)
end
return {'reserved'}
