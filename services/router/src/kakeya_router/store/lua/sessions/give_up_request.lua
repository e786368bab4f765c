-- Gives a CreateSession up: it opens nothing any more, and what it has opened is to be closed.
-- key request
-- arg request_ttl_ms
-- returns the session that it made, also when it was given up before; '' for none
local value = redis.call('GET', key.request) or ''
if string.sub(value, 1, 1) ~= '-' then
  value = '-' .. value
  redis.call('SET', key.request, value, 'PX', arg.request_ttl_ms)
end
return string.sub(value, 2)
