-- Reads a session for a repeated CreateSession; once it is open, keeps the first call from abandoning it.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id
-- returns {'shared', record} | {'missing'}
local state = redis.call('HGET', KEYS[1], 'state')
if state ~= 'opening' and state ~= 'open' and state ~= 'parked' and state ~= 'failed' then
  return {'missing'}
end
if state ~= 'opening' then
  redis.call('HSET', KEYS[1], 'shared', 1)
end
return {'shared', redis.call('HGETALL', KEYS[1])}
