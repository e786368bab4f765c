-- Lines a waiter up; one that is in the line already, or was, keeps its place. Where the queue is full, the newest
-- waiter of the tenant with the most of them makes way for a tenant that has fewer by two at least.
-- KEYS    queue, waiters, usage, evicted
-- ARGV    waiter_id, tenant, key_id, ticket ('': a new one), lease_ms, queue_length (0: whatever its length is),
--         wants (JSON: model, fingerprint, incarnation ('': any), model_digest ('': none, else any fingerprint of it),
--         snapshot_store ('': none), refused: incarnations that cannot hold the session),
--         may_clear (0: a waiter whose lease has lapsed still counts),
--         reserved_bytes (of the lane that it waits for), max_sessions, max_reserved_bytes, key_max_sessions
-- returns {'waiting', ticket}
--         {'full'}
--         {'quota', name, limit} with those of its tenant that wait already, it would exceed this quota
local waiter_id, tenant, ticket, queue_length = ARGV[1], ARGV[2], ARGV[4], tonumber(ARGV[6])
local num_waiting = 0
if ticket == '' then  -- else it was counted when it came
  num_waiting = redis.call('ZLEXCOUNT', KEYS[1], '[' .. tenant .. '|', '(' .. tenant .. '}')
end
local quota, limit = quota_reached(KEYS[3], tenant, ARGV[3], ARGV[9], num_waiting, ARGV[10], ARGV[11], ARGV[12])
if quota then
  return {'quota', quota, limit}
end
local now = now_ms()
local function is_full()
  return queue_length > 0 and redis.call('ZCARD', KEYS[1]) >= queue_length
    and redis.call('HEXISTS', KEYS[2], waiter_id .. '|member') == 0
end
-- The tenant that has the most waiters: how many, its newest one, and how many this one's tenant has.
local function longest()
  local counts, newest, most = {}, nil, 0
  for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    local owner = string.match(member, '^[^|]*')
    counts[owner] = (counts[owner] or 0) + 1
    if counts[owner] > most then
      most, newest = counts[owner], member
    end
  end
  return most, newest, counts[tenant] or 0
end
if is_full() and ARGV[8] == '1' then
  purge(KEYS[1], KEYS[2], now)
end
if is_full() then
  local most, newest, own = longest()
  if own + 2 > most then
    return {'full'}
  end
  local _, _, id = parse_member(newest)
  leave_line(KEYS[1], KEYS[2], id)
  -- For its router, which asks about every second; a vanished one never does.
  redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', now - 60000)
  redis.call('ZADD', KEYS[4], now, id)
  redis.call('PEXPIRE', KEYS[4], 60000)
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
