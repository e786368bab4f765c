-- Keeps a new key or join token.
-- KEYS    credential, ids
-- ARGV    credential_id, lifetime_ms (0: for ever), retention_ms (how long an expired one is still listed), then
--         field, value, ... of the record
-- returns the whole record, or false where the id is taken
if redis.call('EXISTS', KEYS[1]) == 1 then
  return false
end
local now = now_ms()
local lifetime_ms = tonumber(ARGV[2])
redis.call('HSET', KEYS[1], unpack(ARGV, 4))
redis.call('HSET', KEYS[1], 'created_ms', now, 'expires_ms', lifetime_ms > 0 and now + lifetime_ms or 0)
if lifetime_ms > 0 then
  redis.call('PEXPIREAT', KEYS[1], now + lifetime_ms + ARGV[3])
end
redis.call('SADD', KEYS[2], ARGV[1])
return redis.call('HGETALL', KEYS[1])
