-- Stands before every other script: what several of them do. Functions say which keys they are given; those
-- "of a session script" use its KEYS, which are always the same eleven (`SessionRecord.keys`):
-- session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens.

-- Redis's clock in milliseconds, the only one that leases and time-outs go by.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Tells all routers that somebody in the line may have a turn now.
local function announce_room(queue)
  if redis.call('EXISTS', queue) == 1 then
    redis.call('PUBLISH', 'kakeya:room', string.match(queue, '{(.-)}'))
  end
end

-- What a tenant holds in the pool.
local function held_bytes(usage, tenant)
  return tonumber(redis.call('HGET', usage, tenant .. '|bytes') or 0)
end

-- Adds to a field; one that comes to zero is removed.
local function add_usage(usage, field, amount)
  if redis.call('HINCRBY', usage, field, amount) == 0 then
    redis.call('HDEL', usage, field)
  end
end

-- Counts a lane for its tenant and key, or with a sign of -1 no more.
local function count_lane(usage, tenant, key_id, bytes, sign)
  add_usage(usage, tenant .. '|sessions', sign)
  add_usage(usage, tenant .. '|bytes', sign * bytes)
  if key_id ~= '' then
    add_usage(usage, 'key:' .. key_id .. '|sessions', sign)
  end
end

-- The quota that one more lane would exceed, as name and limit; nil: none. A limit of 0 is none.
local function quota_reached(usage, tenant, key_id, bytes, max_sessions, max_bytes, key_max_sessions)
  local function exceeded(field, amount, limit)
    local used = tonumber(redis.call('HGET', usage, field) or 0)
    return tonumber(limit) > 0 and used + amount > tonumber(limit)
  end
  if exceeded(tenant .. '|sessions', 1, max_sessions) then
    return 'sessions', max_sessions
  elseif exceeded(tenant .. '|bytes', tonumber(bytes), max_bytes) then
    return 'reserved_bytes', max_bytes
  elseif key_id ~= '' and exceeded('key:' .. key_id .. '|sessions', 1, key_max_sessions) then
    return 'key_sessions', key_max_sessions
  end
  return nil
end

-- Gives the lane back of a session script's session: to the ledger while its incarnation is alive, to its tenant
-- and key always.
local function give_back()
  local record = redis.call('HMGET', KEYS[1], 'incarnation', 'reserved_bytes', 'kv_live_bytes', 'tenant', 'key_id')
  if tonumber(record[2]) == 0 then
    return
  end
  if redis.call('HGET', KEYS[3], 'incarnation') == record[1] then
    redis.call('HINCRBY', KEYS[3], 'reserved_bytes', 0 - record[2])
    redis.call('HINCRBY', KEYS[3], 'kv_live_bytes', 0 - record[3])
    redis.call('HINCRBY', KEYS[3], 'num_sessions', -1)
  end
  if record[4] then  -- else an older router reserved the lane, and counted it for nobody
    count_lane(KEYS[7], record[4], record[5], record[2], -1)
  end
  announce_room(KEYS[8])
end

-- Tokens that a tenant has used and that its rate, in tokens a minute, has not given back yet.
local function spent_tokens(tokens, rate, now)
  local bucket = redis.call('HMGET', tokens, 'spent', 'at_ms')
  if not bucket[1] then
    return 0
  end
  return math.max(0, bucket[1] - (now - bucket[2]) * rate / 60000)
end

-- Charges the tenant of a session script for what the history has grown to since the running operation began.
-- The key lives until all of it is given back.
local function charge_operation(history_length, now)
  local operation = redis.call('HMGET', KEYS[2], 'start_length', 'tokens_per_minute')
  local rate = tonumber(operation[2] or 0)
  if rate == 0 or tonumber(history_length) <= tonumber(operation[1]) then
    return
  end
  local spent = spent_tokens(KEYS[11], rate, now) + history_length - operation[1]
  redis.call('HSET', KEYS[11], 'spent', string.format('%.17g', spent), 'at_ms', now)
  redis.call('PEXPIRE', KEYS[11], math.ceil(spent * 60000 / rate))
end

-- Takes a waiter out of the line, if it stands in it.
local function leave_line(queue, waiters, id)
  local member = redis.call('HGET', waiters, id .. '|member')
  if not member then
    return false
  end
  redis.call('ZREM', queue, member)
  redis.call('HDEL', waiters, id .. '|member', id .. '|wants', id .. '|lease_until_ms')
  if redis.call('EXISTS', queue) == 0 then
    redis.call('DEL', waiters)
  end
  return true
end

-- The members of the queue are "TENANT|ticket|waiter id"; '|' is above and '}' beyond all that tenants consist of.
local function parse_member(member)
  return string.match(member, '^(.-)|(%d+)|(.*)$')
end

local function member_after(queue, bound)
  return redis.call('ZRANGEBYLEX', queue, bound, '+', 'LIMIT', 0, 1)[1]
end

-- Whether what a waiter wants, as JSON holds it, can be had from a worker {incarnation, fingerprint}.
local function can_use(wants, worker)
  if wants.fingerprint ~= '' and wants.fingerprint ~= worker[2] then
    return false
  end
  for _, incarnation in ipairs(wants.refused) do
    if incarnation == worker[1] then
      return false
    end
  end
  return true
end

-- Whether a waiter {bytes, ticket, id} comes before another. Tickets are equally long.
local function comes_before(one, other)
  if one[1] ~= other[1] then
    return one[1] < other[1]
  end
  return one[2] < other[2]
end

-- Who has the turn at each of some workers {incarnation, fingerprint}: inside a tenant the oldest, between tenants
-- the one that holds the fewest bytes, then the older. Waiters whose lease has lapsed leave the line.
-- Returns for each worker {bytes, ticket, id}, or false.
local function first_in_line(queue, waiters, usage, workers, now)
  local firsts = {}
  for i = 1, #workers do
    firsts[i] = false
  end
  local member = member_after(queue, '-')
  while member do
    local tenant = parse_member(member)
    local bytes, found, num_found = held_bytes(usage, tenant), {}, 0
    while member and num_found < #workers do
      local owner, ticket, id = parse_member(member)
      if owner ~= tenant then
        break
      end
      local waiter = redis.call('HMGET', waiters, id .. '|lease_until_ms', id .. '|wants')
      if tonumber(waiter[1]) <= now then
        leave_line(queue, waiters, id)
      else
        local wants = cjson.decode(waiter[2])
        for i, worker in ipairs(workers) do
          if not found[i] and can_use(wants, worker) then
            found[i], num_found = true, num_found + 1
            local candidate = {bytes, ticket, id}
            if not firsts[i] or comes_before(candidate, firsts[i]) then
              firsts[i] = candidate
            end
          end
        end
      end
      member = member_after(queue, '(' .. member)
    end
    member = member_after(queue, '(' .. tenant .. '}')
  end
  return firsts
end
