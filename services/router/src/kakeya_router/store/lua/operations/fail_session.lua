-- Marks a session FAILED after an invariant violation: its lane is given back, its counters stay until the TTL.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, claim, counter (inv1_violations or inv2_violations)
-- returns 'failed' | 'gone' (closed, lost or taken over)
if not holds(ARGV[2]) then
  return 'gone'
end
local record = redis.call('HMGET', KEYS[1], 'ttl_ms', 'journal_length')
local now = now_ms()
charge_operation(record[2], now)
give_back()
redis.call('HSET', KEYS[1],
  'state', 'failed', 'reserved_bytes', 0, 'kv_live_bytes', 0, 'retained', '', 'idle_since_ms', now)
redis.call('HINCRBY', KEYS[1], ARGV[3], 1)
redis.call('DEL', KEYS[2], KEYS[12])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('ZADD', KEYS[5], now + record[1], ARGV[1])
return 'failed'
