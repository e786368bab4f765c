-- Forgets a key or join token.
-- KEYS    credential, ids
-- ARGV    credential_id
-- returns the record that it had; empty: there is none
local record = redis.call('HGETALL', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('SREM', KEYS[2], ARGV[1])
return record
