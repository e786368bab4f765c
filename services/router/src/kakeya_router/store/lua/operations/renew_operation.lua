-- Renews an operation's lease; a session with a running operation does not expire.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, claim, lease_ms
-- returns 'renewed' | 'gone' (over, closed, lost or taken over)
if not holds(ARGV[2]) or redis.call('HGET', KEYS[2], 'kind') == 'close' then
  return 'gone'
end
local now = now_ms()
redis.call('HSET', KEYS[2], 'lease_until_ms', now + ARGV[3])
redis.call('ZADD', KEYS[5], 'GT', now + redis.call('HGET', KEYS[1], 'ttl_ms'), ARGV[1])
return 'renewed'
