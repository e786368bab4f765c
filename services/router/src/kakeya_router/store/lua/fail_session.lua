-- Marks a session FAILED after an invariant violation: its bytes return to the ledger, its counters stay until
-- the TTL.
-- KEYS    session, operation, worker, sessions, expiry, request
-- ARGV    session_id, op_id, counter (inv1_violations or inv2_violations)
-- returns 'failed' | 'gone' (closed, lost or taken over)
if redis.call('HGET', KEYS[2], 'op_id') ~= ARGV[2] then
  return 'gone'
end
local record = redis.call('HMGET', KEYS[1], 'incarnation', 'reserved_bytes', 'kv_live_bytes', 'ttl_ms')
if redis.call('HGET', KEYS[3], 'incarnation') == record[1] then
  redis.call('HINCRBY', KEYS[3], 'reserved_bytes', 0 - record[2])
  redis.call('HINCRBY', KEYS[3], 'kv_live_bytes', 0 - record[3])
  redis.call('HINCRBY', KEYS[3], 'num_sessions', -1)
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1],
  'state', 'failed', 'reserved_bytes', 0, 'kv_live_bytes', 0, 'retained', '', 'idle_since_ms', now)
redis.call('HINCRBY', KEYS[1], ARGV[3], 1)
redis.call('DEL', KEYS[2])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('ZADD', KEYS[5], now + record[4], ARGV[1])
return 'failed'
