-- Forgets a key or join token.
-- key credential, ids
-- arg credential_id
-- returns the record that it had; empty: there is none
local record = redis.call('HGETALL', key.credential)
redis.call('DEL', key.credential)
redis.call('SREM', key.ids, arg.credential_id)
return record
