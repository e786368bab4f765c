-- What scripts of a session do, whose header says "of a session": these names are theirs.
-- key session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal, tags, tagged
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

-- Has the session inherit only the snapshots of this list, of those that it has inherited.
local function disinherit(kept)
  local is_kept, gone = {}, {}
  for _, snapshot in ipairs(snapshots_until(math.huge, kept)) do
    is_kept[snapshot[1]] = true
  end
  for _, snapshot in ipairs(snapshots_until(math.huge, redis.call('HGET', key.session, 'inherited'))) do
    if not is_kept[snapshot[1]] then
      gone[#gone + 1] = snapshot[1] .. '|' .. arg.session_id
    end
  end
  if #gone > 0 then
    redis.call('ZREM', key.heirs, unpack(gone))
    redis.call('HSET', key.session, 'inherited', kept)
  end
end

-- The epoch of the session's next lane: greater than all under which one was opened anywhere, also at a time of which
-- this Redis does not know any more, since it was set back.
local function next_epoch()
  local record = redis.call('HMGET', key.session, 'epoch', 'offered_epoch')
  return string.format('%.0f', math.max(record[1] + 1, (record[2] or 0) + 1, now_ms()))
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

-- Whether the session gives way, so that the tenant arg.wanted_by has its lane: nobody has used it for arg.idle_ms, and
-- it is that tenant's own or of one that holds two lanes more at least. With one more, the two would take it from each
-- other in turn.
local function may_give_way(now)
  local idle_since = redis.call('ZSCORE', key.idle, arg.session_id)
  if not idle_since or tonumber(idle_since) > now - arg.idle_ms then
    return false
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
  redis.call('ZREM', key.idle, arg.session_id)
end

-- Parks the session. Its history is what is journaled.
local function park()
  leave_lane('parked')
  redis.call('HSET', key.session, 'worker_id', '', 'incarnation', '', 'address', '',
    'history_length', redis.call('HGET', key.session, 'journal_length') or 0)
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
  redis.call('ZREM', key.idle, arg.session_id)
  forget_request()
  forget_tags()
end
