-- Ends an operation that changed nothing; the session's idle time goes on.
-- of a session
-- arg claim
-- out released
-- out gone: closed, lost or taken over
if not holds() then
  return 'gone'
end
if redis.call('HGET', key.operation, 'taken_over') then  -- nobody has asked the worker yet: the next caller does
  redis.call('HSET', key.operation, 'lease_until_ms', 0)
  return 'released'
end
local record = redis.call('HMGET', key.session, 'idle_since_ms', 'ttl_ms')
local before = redis.call('HGET', key.operation, 'before')
if before then
  local latest = cjson.decode(before)
  redis.call('HSET', key.session,
    'operation_id', latest[1], 'operation_start', latest[2], 'operation_seed', latest[3],
    'operation_features', latest[4] or '')  -- of an older router: none
end
-- A parked session is kept for longer than its own time-out says.
local expires_at = tonumber(redis.call('HGET', key.operation, 'expires_at') or '')
redis.call('DEL', key.operation)
redis.call('ZADD', key.expiry, expires_at or (record[1] + record[2]), arg.session_id)
if redis.call('HGET', key.session, 'state') ~= 'parked' then
  be_idle(record[1])
end
return 'released'
