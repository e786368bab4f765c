-- Renews an operation's lease; a session with a running operation does not expire.
-- of a session
-- arg claim, lease_ms
-- out renewed
-- out gone: over, closed, lost or taken over
if not holds() or redis.call('HGET', key.operation, 'kind') == 'close' then
  return {'gone'}
end
local now = now_ms()
redis.call('HSET', key.operation, 'lease_until_ms', now + arg.lease_ms)
redis.call('ZADD', key.expiry, 'GT', now + redis.call('HGET', key.session, 'ttl_ms'), arg.session_id)
return {'renewed'}
