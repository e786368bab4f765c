-- Reads a session for a repeated CreateSession; once it is open, keeps the first call from abandoning it.
-- of a session
-- out shared {record}
-- out missing
local state = redis.call('HGET', key.session, 'state')
if state ~= 'opening' and state ~= 'open' and state ~= 'parked' and state ~= 'failed' then
  return {'missing'}
end
if state ~= 'opening' then
  redis.call('HSET', key.session, 'shared', 1)
end
return {'shared', redis.call('HGETALL', key.session)}
