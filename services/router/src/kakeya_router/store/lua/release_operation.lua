-- Ends an operation that changed nothing; the session's idle time goes on.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens
-- ARGV    session_id, op_id
-- returns 'released' | 'gone' (closed, lost or taken over)
if redis.call('HGET', KEYS[2], 'op_id') ~= ARGV[2] then
  return 'gone'
end
local record = redis.call('HMGET', KEYS[1], 'idle_since_ms', 'ttl_ms')
redis.call('DEL', KEYS[2])
redis.call('ZADD', KEYS[5], record[1] + record[2], ARGV[1])
redis.call('ZADD', KEYS[10], record[1], ARGV[1])
return 'released'
