-- Finds what the first of some tags names that names anything; of equal ones the latest.
-- key tagged
-- arg first: the tag to begin with, from 1
-- arg num_passed: of that tag so many are passed over, the latest first
-- arg tags...: in hex
-- returns {number of the tag, entry of the index}; {}: none names anything
local number, num_passed = tonumber(arg.first), tonumber(arg.num_passed)
while arg.tags[number] do
  local tag = arg.tags[number]
  local found = redis.call('ZREVRANGEBYLEX', key.tagged, '(' .. tag .. '}', '(' .. tag .. '|', 'LIMIT', num_passed, 1)
  if found[1] then
    return {number, found[1]}
  end
  number, num_passed = number + 1, 0
end
return {}
