-- Keeps a new key or join token.
-- key credential, ids
-- arg credential_id
-- arg lifetime_ms: 0: for ever
-- arg retention_ms: how long an expired one is still listed
-- arg record...: field, value, ... of it
-- returns the whole record, or false where the id is taken
if redis.call('EXISTS', key.credential) == 1 then
  return false
end
local now = now_ms()
local lifetime_ms = tonumber(arg.lifetime_ms)
redis.call('HSET', key.credential, unpack(arg.record))
redis.call('HSET', key.credential, 'created_ms', now, 'expires_ms', lifetime_ms > 0 and now + lifetime_ms or 0)
if lifetime_ms > 0 then
  redis.call('PEXPIREAT', key.credential, now + lifetime_ms + arg.retention_ms)
end
redis.call('SADD', key.ids, arg.credential_id)
return redis.call('HGETALL', key.credential)
