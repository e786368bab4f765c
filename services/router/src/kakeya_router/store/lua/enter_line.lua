-- Lines a waiter up; one that is in the line already, or was, keeps its place. Where the queue is full, the newest
-- waiter of the tenant with the most of them makes way for a tenant that has fewer by two at least.
-- KEYS    queue, waiters, usage
-- ARGV    waiter_id, tenant, key_id, ticket ('': a new one), lease_ms, queue_length (0: whatever its length is),
--         wants (JSON: fingerprint, refused: incarnations that cannot hold the session),
--         reserved_bytes (of the lane that it waits for), max_sessions, max_reserved_bytes, key_max_sessions
-- returns {'waiting', ticket}
--         {'full'}
--         {'quota', name, limit} it would exceed this quota
local waiter_id, tenant, ticket = ARGV[1], ARGV[2], ARGV[4]
local quota, limit = quota_reached(KEYS[3], tenant, ARGV[3], ARGV[8], ARGV[9], ARGV[10], ARGV[11])
if quota then
  return {'quota', quota, limit}
end
local now, queue_length = now_ms(), tonumber(ARGV[6])
local function num_waiting(owner)
  return redis.call('ZLEXCOUNT', KEYS[1], '[' .. owner .. '|', '(' .. owner .. '}')
end
local function is_full()
  return queue_length > 0 and redis.call('ZCARD', KEYS[1]) >= queue_length
    and redis.call('HEXISTS', KEYS[2], waiter_id .. '|member') == 0
end
if is_full() then
  for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    local _, _, id = parse_member(member)
    if tonumber(redis.call('HGET', KEYS[2], id .. '|lease_until_ms')) <= now then
      leave_line(KEYS[1], KEYS[2], id)
    end
  end
end
if is_full() then
  local longest, most = '', 0
  local member = member_after(KEYS[1], '-')
  while member do
    local owner = parse_member(member)
    if num_waiting(owner) > most then
      longest, most = owner, num_waiting(owner)
    end
    member = member_after(KEYS[1], '(' .. owner .. '}')
  end
  if num_waiting(tenant) + 2 > most then
    return {'full'}
  end
  local newest = redis.call('ZREVRANGEBYLEX', KEYS[1], '(' .. longest .. '}', '[' .. longest .. '|', 'LIMIT', 0, 1)[1]
  local _, _, id = parse_member(newest)
  leave_line(KEYS[1], KEYS[2], id)
end
if ticket == '' then
  -- Microseconds, and always a later one: also who comes back after the line was empty stands where it stood.
  local time = redis.call('TIME')
  local last = tonumber(redis.call('HGET', KEYS[2], 'last_ticket') or 0)
  ticket = string.format('%016.0f', math.max(time[1] * 1000000 + time[2], last + 1))
  redis.call('HSET', KEYS[2], 'last_ticket', ticket)
end
local place = tenant .. '|' .. ticket .. '|' .. waiter_id
redis.call('ZADD', KEYS[1], 0, place)
redis.call('HSET', KEYS[2], waiter_id .. '|member', place, waiter_id .. '|wants', ARGV[7],
  waiter_id .. '|lease_until_ms', now + ARGV[5])
return {'waiting', ticket}
