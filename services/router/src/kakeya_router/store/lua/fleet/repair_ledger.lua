-- Corrects counts that Redis has lost a part of, where they still are what they were when the sessions were counted.
-- key ledger: a worker, or the usage of tenants
-- arg changes...: field, what it was, what it is to be, ... ; of the usage, whose fields have a '|', one that is 0 is
--     removed
-- returns the fields that were corrected
local corrected = {}
for i = 1, #arg.changes, 3 do
  local field, was, is = arg.changes[i], arg.changes[i + 1], arg.changes[i + 2]
  local is_usage = string.find(field, '|', 1, true)
  local is_there = is_usage or redis.call('EXISTS', key.ledger) == 1
  if is_there and (redis.call('HGET', key.ledger, field) or '0') == was then
    if is_usage and is == '0' then
      redis.call('HDEL', key.ledger, field)
    else
      redis.call('HSET', key.ledger, field, is)
    end
    corrected[#corrected + 1] = field
  end
end
return corrected
