-- What scripts of a session do, whose header says "of a session": these names are theirs.
-- key session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal, tags, tagged
-- key to_park, spare, spare_of, parked, groups
-- arg session_id

-- Whether the operation on the session is the one with arg.claim. Of a record that Redis has evicted nobody has one:
-- what was written to it would pass for a session.
local function holds()
  return redis.call('HGET', key.operation, 'claim') == arg.claim and redis.call('EXISTS', key.session) == 1
end

-- Whether the session can be resumed when its lane is gone: all of its history is journaled, or what the journal lacks
-- is in snapshots.
local function is_recoverable()
  local record = redis.call('HMGET', key.session, 'journal_start', 'journal_length', 'snapshots', 'inherited')
  local is_all_there = tonumber(record[1] or 0) == 0 and redis.call('STRLEN', key.journal) == 4 * (record[2] or 0)
  return is_all_there or (record[3] or '') ~= '' or (record[4] or '') ~= ''
end

-- Snapshots of a list (stored_snapshots.py) up to a history length.
local function snapshots_until(length, list)
  local found = {}
  for _, snapshot in ipairs((list or '') ~= '' and cjson.decode(list) or {}) do
    if snapshot[3] <= length then
      found[#found + 1] = snapshot
    end
  end
  return found
end

-- Whether any session inherits a file.
local function has_heir(file)
  local first = redis.call('ZRANGEBYLEX', key.heirs, '[' .. file .. '|', '(' .. file .. '}', 'LIMIT', 0, 1)
  return first[1] ~= nil
end

-- Whether the session that a file is named after, as snapshot_files.py names it, has it.
local function has_owner(file)
  local owner = string.match(file, '^[^/]*/(.*)%-%d+%-%d+%-%x+%-%d+%.%a+$') or ''
  local list = redis.call('HGET', string.sub(key.session, 1, -1 - #arg.session_id) .. owner, 'snapshots')
  return string.find(list or '', '"' .. file .. '"', 1, true) ~= nil
end

-- Adds to the bytes of all files that sessions of the pool have, which never fall below zero.
local function add_snapshot_bytes(num_bytes)
  if num_bytes ~= 0 and redis.call('INCRBY', key.snapshot_bytes, string.format('%.0f', num_bytes)) <= 0 then
    redis.call('DEL', key.snapshot_bytes)
  end
end

-- Counts the files of a list that comes in the place of another one, both of the session's own: of those that are in it
-- no more only what nobody inherits, since the others stay.
local function count_snapshots(before, after)
  local sizes, num_bytes = {}, 0
  for _, snapshot in ipairs(snapshots_until(math.huge, before)) do
    sizes[snapshot[1]] = snapshot[4]
  end
  for _, snapshot in ipairs(snapshots_until(math.huge, after)) do
    if not sizes[snapshot[1]] then
      num_bytes = num_bytes + snapshot[4]
    end
    sizes[snapshot[1]] = nil
  end
  for file, size in pairs(sizes) do
    num_bytes = num_bytes - (has_heir(file) and 0 or size)
  end
  add_snapshot_bytes(num_bytes)
end

-- Has the session inherit only the snapshots of this list, of those that it has inherited.
local function disinherit(kept)
  local is_kept, gone, files = {}, {}, {}
  for _, snapshot in ipairs(snapshots_until(math.huge, kept)) do
    is_kept[snapshot[1]] = true
  end
  for _, snapshot in ipairs(snapshots_until(math.huge, redis.call('HGET', key.session, 'inherited'))) do
    if not is_kept[snapshot[1]] then
      gone[#gone + 1], files[#files + 1] = snapshot[1] .. '|' .. arg.session_id, snapshot
    end
  end
  if #gone > 0 then
    redis.call('ZREM', key.heirs, unpack(gone))
    redis.call('HSET', key.session, 'inherited', kept)
  end
  for _, snapshot in ipairs(files) do
    if not has_heir(snapshot[1]) and not has_owner(snapshot[1]) then
      add_snapshot_bytes(0 - snapshot[4])
    end
  end
end

-- The epoch of the session's next lane: greater than all under which one was opened anywhere, also at a time of which
-- this Redis does not know any more, since it was set back or took over from one that knew more. Its high part is the
-- generation of the primary (arg.generation), greater after each failover; its low part the time in milliseconds, which
-- 41 bits hold until 2039. A number of Lua has 53, so that generations count up to 4095.
local function next_epoch()
  local record = redis.call('HMGET', key.session, 'epoch', 'offered_epoch')
  local latest = math.max(record[1], record[2] or 0)
  local generation = math.max(math.floor(latest / 2^41), math.min(arg.generation, 4095))
  return string.format('%.0f', math.max(latest + 1, generation * 2^41 + now_ms()))
end

-- Remembers that a turn of the session ended here, and the three before.
local function add_boundary(length)
  local boundaries = {}
  for boundary in string.gmatch(redis.call('HGET', key.session, 'boundaries') or '', '%d+') do
    boundaries[#boundaries + 1] = boundary
  end
  boundaries[#boundaries + 1] = string.format('%.0f', length)
  redis.call('HSET', key.session, 'boundaries', table.concat(boundaries, ',', math.max(1, #boundaries - 3)))
end

-- What puts a rank of key.spare before all that are a time in milliseconds.
local BEFORE_ALL = 10000000000000

-- The session is idle since then. Should it be parked some time, that is due later. One that is disposable makes room
-- from now on, if an answer of it has ended: before all others where it has had one turn, and its prefill costs less
-- than parking.
local function be_idle(since)
  announce_change(arg.session_id)
  redis.call('ZADD', key.idle, since, arg.session_id)
  local record = redis.call('HMGET', key.session,
    'park_after_ms', 'disposable', 'boundaries', 'journal_length', 'cheap_tokens')
  if tonumber(record[1] or 0) > 0 then
    redis.call('ZADD', key.to_park, since + record[1], arg.session_id)
  end
  if record[2] == '1' and (record[3] or '') ~= '' then
    local is_cheap = not string.find(record[3], ',', 1, true) and tonumber(record[4]) <= tonumber(record[5])
    local rank = is_cheap and since - BEFORE_ALL or since
    redis.call('ZADD', key.spare, rank, arg.session_id)
    redis.call('ZADD', key.spare_of, rank, arg.session_id)
  end
end

-- It is not idle any more.
local function be_busy()
  announce_change(arg.session_id)
  for _, name in ipairs({key.idle, key.to_park, key.spare, key.spare_of}) do
    redis.call('ZREM', name, arg.session_id)
  end
end

-- What members of key.groups begin with, of the group that a tenant's session is one of.
local function group_prefix(tenant, group)
  return (tenant or '') .. '|' .. group .. '|'
end

-- The members that begin with it, as bounds of a range.
local function group_range(prefix)
  return '[' .. prefix, '(' .. string.sub(prefix, 1, -2) .. '}'  -- which comes after '|'
end

-- The session is nothing any more that its tenant, or the pool, keeps some of.
local function leave_lists()
  redis.call('ZREM', key.parked, arg.session_id)
  local record = redis.call('HMGET', key.session, 'tenant', 'group')
  if (record[2] or '') ~= '' then
    redis.call('ZREM', key.groups, group_prefix(record[1], record[2]) .. arg.session_id)
  end
end

-- Whether the session gives way, so that the tenant arg.wanted_by has its lane: nobody has used it for arg.idle_ms, and
-- it makes room for everybody, or is that tenant's own or of one that holds two lanes more at least. With one more, the
-- two would take it from each other in turn.
local function may_give_way(now)
  local idle_since = redis.call('ZSCORE', key.idle, arg.session_id)
  if not idle_since or tonumber(idle_since) > now - arg.idle_ms then
    return false
  end
  if redis.call('ZSCORE', key.spare, arg.session_id) then
    return true
  end
  local record = redis.call('HMGET', key.session, 'tenant', 'reserved_bytes')
  local owner = record[1] or ''
  local held = held_by({owner, arg.wanted_by})
  return owner == arg.wanted_by or held[owner] >= held[arg.wanted_by] + 2 * record[2]
end

-- Takes the session off its lane, which is given back.
local function leave_lane(state)
  give_back()
  redis.call('HSET', key.session, 'state', state, 'reserved_bytes', 0, 'kv_live_bytes', 0, 'retained', '')
  be_busy()
end

-- When a session that is parked now expires, idle since then. One that is disposable has its own time, however short.
local function parked_until(now, idle_since)
  local record = redis.call('HMGET', key.session, 'ttl_ms', 'disposable')
  local own = idle_since + record[1]
  return record[2] == '1' and own or math.max(now + arg.parked_ms, own)
end

-- Parks the session. Its history is what is journaled.
local function park()
  leave_lane('parked')
  redis.call('HSET', key.session, 'worker_id', '', 'incarnation', '', 'address', '',
    'history_length', redis.call('HGET', key.session, 'journal_length') or 0)
  local record = redis.call('HMGET', key.session, 'disposable', 'idle_since_ms')
  if record[1] == '1' then
    redis.call('ZADD', key.parked, record[2], arg.session_id)
  end
end

-- Takes sessions off the list of all that the pool has. With the last one goes what their files have been counted as:
-- of sessions that Redis has evicted, and of those of an older router, it is wrong. Returns how many were on the list.
local function leave_pool(...)
  local num_left = redis.call('ZREM', key.expiry, ...)
  for _, session_id in ipairs({...}) do
    announce_change(session_id)
  end
  if redis.call('EXISTS', key.expiry) == 0 then
    redis.call('DEL', key.snapshot_bytes)
  end
  return num_left
end

-- Lets the request that made the session make another one.
local function forget_request()
  if redis.call('GET', key.request) == arg.session_id then
    redis.call('DEL', key.request)
  end
end

-- Claims the session for good, under arg.claim by arg.router; should that vanish before delete_session, the reaper
-- closes the session again once arg.lease_ms have passed.
local function claim_for_good(now)
  redis.call('HSET', key.session, 'state', 'closing')
  redis.call('DEL', key.operation)
  redis.call('HSET', key.operation, 'claim', arg.claim, 'kind', 'close', 'router', arg.router,
    'lease_until_ms', now + arg.lease_ms)
  redis.call('ZADD', key.expiry, now + arg.lease_ms, arg.session_id)
  be_busy()
  leave_lists()
  forget_request()
  forget_tags()
end
