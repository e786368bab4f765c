-- Gives a CreateSession up: it opens nothing any more, and what it has opened is to be closed.
-- KEYS    request
-- ARGV    request_ttl_ms
-- returns the session that it made, also when it was given up before; '' for none
local value = redis.call('GET', KEYS[1]) or ''
if string.sub(value, 1, 1) ~= '-' then
  value = '-' .. value
  redis.call('SET', KEYS[1], value, 'PX', ARGV[1])
end
return string.sub(value, 2)
