-- Finds what the first of some tags names that names anything; of equal ones the latest.
-- key tagged
-- arg prefix: of the names of the pool's keys
-- arg first: the tag to begin with, from 1
-- arg num_passed: of that tag so many are passed over, the latest first
-- arg tags...: in hex
-- returns {number of the tag, entry of the index, session, its tags, until when its operation is leased, time}; {}: none
-- names anything
local number, num_passed = tonumber(arg.first), tonumber(arg.num_passed)
while arg.tags[number] do
  local tag = arg.tags[number]
  local found = redis.call('ZREVRANGEBYLEX', key.tagged, '(' .. tag .. '}', '(' .. tag .. '|', 'LIMIT', num_passed, 1)
  if found[1] then
    local id = string.match(found[1], '[^|]*$')
    local lease = redis.call('HGET', arg.prefix .. 'op:' .. id, 'lease_until_ms')
    return {number, found[1], redis.call('HGETALL', arg.prefix .. 'session:' .. id),
      redis.call('HGETALL', arg.prefix .. 'tags:' .. id), lease or '0', redis.call('TIME')}
  end
  number, num_passed = number + 1, 0
end
return {}
