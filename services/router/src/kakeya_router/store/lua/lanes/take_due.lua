-- Takes sessions that are to be parked by now. Should one not be parked, it is due again after a while.
-- key to_park
-- arg limit: most of them
-- arg again_ms
-- returns ids
local now = now_ms()
local due = redis.call('ZRANGEBYSCORE', key.to_park, '-inf', now, 'LIMIT', 0, arg.limit)
for _, session_id in ipairs(due) do
  redis.call('ZADD', key.to_park, now + arg.again_ms, session_id)
end
return due
