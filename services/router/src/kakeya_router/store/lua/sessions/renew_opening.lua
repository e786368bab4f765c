-- Renews the lease of a session that is being opened: its lane has to prefill something before.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, claim, lease_ms
-- returns 'renewed' | 'gone' (the lease lapsed and was taken over, or the worker was lost meanwhile)
if redis.call('HGET', KEYS[2], 'claim') ~= ARGV[2] then
  return 'gone'
end
local lease_until = now_ms() + ARGV[3]
redis.call('HSET', KEYS[2], 'lease_until_ms', lease_until)
redis.call('ZADD', KEYS[5], lease_until, ARGV[1])  -- as in reserve_session.lua
return 'renewed'
