-- Ends an operation that changed nothing; the session's idle time goes on.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, claim
-- returns 'released' | 'gone' (closed, lost or taken over)
if not holds(ARGV[2]) then
  return 'gone'
end
if redis.call('HGET', KEYS[2], 'taken_over') then  -- nobody has asked the worker yet: the next caller does
  redis.call('HSET', KEYS[2], 'lease_until_ms', 0)
  return 'released'
end
local record = redis.call('HMGET', KEYS[1], 'idle_since_ms', 'ttl_ms')
local before = redis.call('HGET', KEYS[2], 'before')
if before then
  local latest = cjson.decode(before)
  redis.call('HSET', KEYS[1],
    'operation_id', latest[1], 'operation_start', latest[2], 'operation_seed', latest[3])
end
-- A parked session is kept for longer than its own time-out says.
local expires_at = tonumber(redis.call('HGET', KEYS[2], 'expires_at') or '')
redis.call('DEL', KEYS[2])
redis.call('ZADD', KEYS[5], expires_at or (record[1] + record[2]), ARGV[1])
if redis.call('HGET', KEYS[1], 'state') ~= 'parked' then
  redis.call('ZADD', KEYS[10], record[1], ARGV[1])
end
return 'released'
