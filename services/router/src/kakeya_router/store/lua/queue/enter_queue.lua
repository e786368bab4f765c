-- Puts a waiter into the queue; one that is in it already, or was, keeps its place. Where the queue is full, the newest
-- waiter of the tenant with the most of them makes way for a tenant that has fewer by two at least.
-- key queue, waiters, usage, evicted
-- arg waiter_id, tenant, key_id
-- arg ticket: '': a new one
-- arg lease_ms
-- arg queue_length: 0: whatever its length is
-- arg wants: JSON: model, fingerprint, incarnation ('': any), model_digest ('': none, else any fingerprint of it),
--     snapshot_store ('': none), refused: incarnations that cannot hold the session, features: that it must have
-- arg may_clear: 0: a waiter whose lease has lapsed still counts
-- arg reserved_bytes: of the lane that it waits for
-- arg max_sessions, max_reserved_bytes, key_max_sessions: 0: no limit
-- out waiting {ticket}
-- out full
-- out quota {name, limit}: with those of its tenant that wait already, it would exceed this quota
local ticket, queue_length = arg.ticket, tonumber(arg.queue_length)
local num_waiting = 0
if ticket == '' then  -- else it was counted when it came
  num_waiting = redis.call('ZLEXCOUNT', key.queue, '[' .. arg.tenant .. '|', '(' .. arg.tenant .. '}')
end
local quota, limit = quota_reached(arg.tenant, arg.key_id, arg.reserved_bytes, num_waiting)
if quota then
  return {'quota', quota, limit}
end
local now = now_ms()
local function is_full()
  return queue_length > 0 and redis.call('ZCARD', key.queue) >= queue_length
    and redis.call('HEXISTS', key.waiters, arg.waiter_id .. '|member') == 0
end
-- The tenant that has the most waiters: how many, its newest one, and how many this one's tenant has.
local function longest()
  local counts, newest, most = {}, nil, 0
  for _, member in ipairs(redis.call('ZRANGE', key.queue, 0, -1)) do
    local owner = string.match(member, '^[^|]*')
    counts[owner] = (counts[owner] or 0) + 1
    if counts[owner] > most and owner ~= INTERRUPTED then
      most, newest = counts[owner], member
    end
  end
  return most, newest, counts[arg.tenant] or 0
end
if is_full() and arg.may_clear == '1' then
  purge(now)
end
if is_full() then
  local most, newest, own = longest()
  if own + 2 > most then
    return {'full'}
  end
  local _, _, id = parse_member(newest)
  forget({{member = newest, id = id}})
  -- For its router, which asks about every second; a vanished one never does.
  redis.call('ZREMRANGEBYSCORE', key.evicted, '-inf', now - 60000)
  redis.call('ZADD', key.evicted, now, id)
  redis.call('PEXPIRE', key.evicted, 60000)
end
if ticket == '' then
  -- Microseconds, and always a later one: also who comes back after the queue was empty stands where it stood.
  local time = redis.call('TIME')
  local last = tonumber(redis.call('HGET', key.waiters, 'last_ticket') or 0)
  ticket = string.format('%016.0f', math.max(time[1] * 1000000 + time[2], last + 1))
  redis.call('HSET', key.waiters, 'last_ticket', ticket)
end
local place = arg.tenant .. '|' .. ticket .. '|' .. arg.waiter_id
local former = redis.call('HGET', key.waiters, arg.waiter_id .. '|member')
if former and former ~= place then
  redis.call('ZREM', key.queue, former)
end
redis.call('ZREM', key.evicted, arg.waiter_id)  -- it is told of by its answer
redis.call('ZADD', key.queue, 0, place)
redis.call('HSET', key.waiters, arg.waiter_id .. '|member', place, arg.waiter_id .. '|wants', arg.wants,
  arg.waiter_id .. '|lease_until_ms', now + arg.lease_ms)
return {'waiting', ticket}
