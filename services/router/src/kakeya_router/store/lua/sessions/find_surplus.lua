-- Which sessions of a group are more than their tenant keeps: the least recently used, of those that may go.
-- key groups, spare, parked
-- arg tenant, group
-- arg limit: how many may stay
-- arg spared: a session that stays
-- arg session: what the key of a session begins with; its id follows
-- returns ids
local prefix = group_prefix(arg.tenant, arg.group)
local found, num_there = {}, 0
for _, member in ipairs(redis.call('ZRANGEBYLEX', key.groups, group_range(prefix))) do
  local session_id = string.sub(member, #prefix + 1)
  if redis.call('EXISTS', arg.session .. session_id) == 0 then  -- Redis has evicted it, or an older router closed it
    redis.call('ZREM', key.groups, member)
  else
    num_there = num_there + 1
    local parked_since = redis.call('ZSCORE', key.parked, session_id)
    local idle_since = parked_since or redis.call('ZSCORE', key.spare, session_id)
    if idle_since and session_id ~= arg.spared then
      local since = tonumber(idle_since)
      found[#found + 1] = {since < 0 and since + BEFORE_ALL or since, session_id}
    end
  end
end
table.sort(found, function(one, other) return one[1] < other[1] end)
local surplus = {}
for i = 1, math.min(#found, num_there - arg.limit) do
  surplus[i] = found[i][2]
end
return surplus
