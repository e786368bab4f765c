-- Renews the lease of a session that is being opened: its lane has to prefill something before.
-- of a session
-- arg claim, lease_ms
-- out renewed
-- out gone: the lease lapsed and was taken over, or the worker was lost meanwhile
if redis.call('HGET', key.operation, 'claim') ~= arg.claim then
  return 'gone'
end
local lease_until = now_ms() + arg.lease_ms
redis.call('HSET', key.operation, 'lease_until_ms', lease_until)
redis.call('ZADD', key.expiry, lease_until, arg.session_id)  -- as in reserve_session.lua
return 'renewed'
