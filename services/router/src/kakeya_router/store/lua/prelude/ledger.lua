-- What workers and tenants use: bytes, lanes, tokens.

-- Adds to a count of a worker's ledger, which never falls below zero; ledger_audit.py repairs what Redis has
-- lost of it.
local function add_count(worker, field, amount)
  if redis.call('HINCRBY', worker, field, amount) < 0 then
    redis.call('HSET', worker, field, 0)
  end
end

-- Adds to a field of what tenants use, likewise; one that comes to zero is removed.
local function add_usage(field, amount)
  if redis.call('HINCRBY', key.usage, field, amount) <= 0 then
    redis.call('HDEL', key.usage, field)
  end
end

-- Counts a lane for its tenant and key, or with a sign of -1 no more.
local function count_lane(tenant, key_id, bytes, sign)
  add_usage(tenant .. '|sessions', sign)
  add_usage(tenant .. '|bytes', sign * bytes)
  if key_id ~= '' then
    add_usage('key:' .. key_id .. '|sessions', sign)
  end
end

-- The quota that one more lane would exceed, beside those that so many of the tenant wait for, as name and limit;
-- nil: none. A limit of 0 is none.
local function quota_reached(tenant, key_id, bytes, num_waiting)
  local function exceeded(field, amount, limit)
    limit = tonumber(limit)
    return limit > 0 and (redis.call('HGET', key.usage, field) or 0) + amount > limit
  end
  if exceeded(tenant .. '|sessions', num_waiting + 1, arg.max_sessions) then
    return 'sessions', arg.max_sessions
  elseif exceeded(tenant .. '|bytes', (num_waiting + 1) * bytes, arg.max_reserved_bytes) then
    return 'reserved_bytes', arg.max_reserved_bytes
  elseif key_id ~= '' and exceeded('key:' .. key_id .. '|sessions', 1, arg.key_max_sessions) then
    return 'key_sessions', arg.key_max_sessions
  end
  return nil
end

-- As a tenant: of waiters whose operation has lost its lane, who come before all others.
local INTERRUPTED = '!'

-- The bytes that tenants hold in the pool, by tenant; who holds less comes first.
local function held_by(tenants)
  local names, fields, held = {}, {}, {}
  for _, tenant in ipairs(tenants) do
    if names[#names] ~= tenant then
      names[#names + 1], fields[#fields + 1] = tenant, tenant .. '|bytes'
    end
  end
  if #names > 0 then
    for i, bytes in ipairs(redis.call('HMGET', key.usage, unpack(fields))) do
      held[names[i]] = names[i] == INTERRUPTED and -1 or tonumber(bytes or 0)
    end
  end
  return held
end

-- Whether a worker is given no session now: it is drained, by itself or by an operator, or it is reached through tunnels
-- and has none.
local function takes_nobody(worker)
  local marks = redis.call('HMGET', worker, 'leaving', 'drain_asked', 'address', 'tunnels')
  local has_no_way = string.sub(marks[3] or '', 1, 7) == 'tunnel:' and (marks[4] or '') == ''
  return marks[1] == '1' or marks[2] == '1' or has_no_way
end

-- Why a worker has no lane of these bytes for any session, if it has none: 'away', its incarnation is not alive or takes
-- nobody; 'full', it has not the bytes.
local function refuses_lane(worker)
  local record = redis.call('HMGET', worker, 'incarnation', 'slab_bytes', 'reserved_bytes')
  if record[1] ~= arg.incarnation or takes_nobody(worker) then
    return 'away'
  end
  return record[2] - record[3] < tonumber(arg.lane_bytes) and 'full'
end

-- Counts the lane that a session script's session is to have, of a worker and by its tenant and key.
local function take_lane(worker, sessions, lane_bytes)
  local record = redis.call('HMGET', key.session, 'tenant', 'key_id')
  redis.call('HINCRBY', worker, 'reserved_bytes', lane_bytes)
  redis.call('HINCRBY', worker, 'num_sessions', 1)
  count_lane(record[1] or '', record[2] or '', lane_bytes, 1)
  redis.call('SADD', sessions, arg.session_id)
end

-- Gives the lane back of a session script's session: to the ledger while its incarnation is alive, to its tenant
-- and key always.
local function give_back()
  redis.call('SREM', key.sessions, arg.session_id)
  local record = redis.call('HMGET', key.session, 'incarnation', 'reserved_bytes', 'kv_live_bytes', 'tenant', 'key_id')
  if tonumber(record[2] or 0) == 0 then
    return
  end
  if redis.call('HGET', key.worker, 'incarnation') == record[1] then
    add_count(key.worker, 'reserved_bytes', 0 - record[2])
    add_count(key.worker, 'kv_live_bytes', 0 - record[3])
    add_count(key.worker, 'num_sessions', -1)
  end
  if record[4] then  -- else an older router reserved the lane, and counted it for nobody
    count_lane(record[4], record[5], record[2], -1)
  end
  announce_room()
end

-- Tokens that the tenant of a session script has used and that its rate, in tokens a minute, has not given back yet.
local function spent_tokens(rate, now)
  local bucket = redis.call('GET', key.tokens)
  if not bucket then
    return 0
  end
  local spent, at_ms = string.match(bucket, '^(%S+) (%S+)$')
  return math.max(0, spent - (now - at_ms) * rate / 60000)
end

-- How long that tenant has to wait until it may use tokens again; nil: not at all.
local function tokens_back_ms(now)
  local rate = tonumber(arg.tokens_per_minute)
  local debt = rate > 0 and spent_tokens(rate, now) - rate or -1
  return debt >= 0 and math.floor(debt * 60000 / rate) + 1 or nil
end

-- Charges that tenant for what the history has grown to since the running operation began. The key lives until all of
-- it is given back.
local function charge(history_length, now)
  local operation = redis.call('HMGET', key.operation, 'start_length', 'tokens_per_minute')
  local start_length, rate = operation[1], tonumber(operation[2] or 0)
  if rate == 0 or tonumber(history_length) <= tonumber(start_length) then
    return
  end
  local spent = spent_tokens(rate, now) + history_length - start_length
  local lifetime_ms = math.ceil(spent * 60000 / rate)
  redis.call('SET', key.tokens, string.format('%.17g %.0f', spent, now), 'PX', lifetime_ms)
end
