-- Marks a session FAILED after an invariant violation: its lane is given back, its counters stay until the TTL.
-- of a session
-- arg claim
-- arg counter: inv1_violations or inv2_violations
-- out failed
-- out gone: closed, lost or taken over
if not holds() then
  return 'gone'
end
local record = redis.call('HMGET', key.session, 'ttl_ms', 'journal_length')
local now = now_ms()
charge(record[2], now)
leave_lane('failed')
leave_lists()
redis.call('HSET', key.session, 'idle_since_ms', now)
redis.call('HINCRBY', key.session, arg.counter, 1)
redis.call('DEL', key.operation, key.journal)
forget_tags()
redis.call('ZADD', key.expiry, now + record[1], arg.session_id)
return 'failed'
