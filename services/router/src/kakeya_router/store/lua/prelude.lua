-- Stands before every script: what several do. Functions say which keys they are given; those "of a session script" use
-- key session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- arg session_id

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

-- Whether an operation on a session script's session is the one with this claim. Of a record that Redis has evicted nobody
-- has one: what was written to it would pass for a session.
local function holds(claim)
  return redis.call('HGET', key.operation, 'claim') == claim and redis.call('EXISTS', key.session) == 1
end

-- Adds to a count of a worker's ledger, which never falls below zero: what Redis has lost of it ledger_audit.py repairs.
local function add_count(worker, field, amount)
  if redis.call('HINCRBY', worker, field, amount) < 0 then
    redis.call('HSET', worker, field, 0)
  end
end

-- As a tenant: of waiters whose operation has lost its lane, who come before all others.
local INTERRUPTED = '!'

-- What a tenant holds in the pool; who holds less comes first.
local function held_bytes(usage, tenant)
  if tenant == INTERRUPTED then
    return -1
  end
  return tonumber(redis.call('HGET', usage, tenant .. '|bytes') or 0)
end

-- Adds to a field, likewise; one that comes to zero is removed.
local function add_usage(usage, field, amount)
  if redis.call('HINCRBY', usage, field, amount) <= 0 then
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

-- The quota that one more lane would exceed, beside those that so many of the tenant wait for, as name and limit;
-- nil: none. A limit of 0 is none.
local function quota_reached(usage, tenant, key_id, bytes, num_waiting, max_sessions, max_bytes, key_max_sessions)
  local function exceeded(field, amount, limit)
    local used = tonumber(redis.call('HGET', usage, field) or 0)
    return tonumber(limit) > 0 and used + amount > tonumber(limit)
  end
  if exceeded(tenant .. '|sessions', num_waiting + 1, max_sessions) then
    return 'sessions', max_sessions
  elseif exceeded(tenant .. '|bytes', (num_waiting + 1) * bytes, max_bytes) then
    return 'reserved_bytes', max_bytes
  elseif key_id ~= '' and exceeded('key:' .. key_id .. '|sessions', 1, key_max_sessions) then
    return 'key_sessions', key_max_sessions
  end
  return nil
end

-- Whether a worker is being emptied, by itself or by an operator: it is given no session then.
local function is_draining(worker)
  local marks = redis.call('HMGET', worker, 'leaving', 'drain_asked')
  return marks[1] == '1' or marks[2] == '1'
end

-- Gives the lane back of a session script's session: to the ledger while its incarnation is alive, to its tenant
-- and key always.
local function give_back()
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
    count_lane(key.usage, record[4], record[5], record[2], -1)
  end
  announce_room(key.queue)
end

-- Tokens that a tenant has used and that its rate, in tokens a minute, has not given back yet.
local function spent_tokens(tokens, rate, now)
  local bucket = redis.call('GET', tokens)
  if not bucket then
    return 0
  end
  local spent, at_ms = string.match(bucket, '^(%S+) (%S+)$')
  return math.max(0, spent - (now - at_ms) * rate / 60000)
end

-- How long the tenant of a session script has to wait until it may use tokens again; nil: not at all.
local function tokens_back_ms(rate, now)
  local debt = rate > 0 and spent_tokens(key.tokens, rate, now) - rate or -1
  return debt >= 0 and math.floor(debt * 60000 / rate) + 1 or nil
end

-- Charges the tenant of a session script for what the history has grown to since the running operation, of which
-- `start_length` and `rate` are as its record has them, began. The key lives until all of it is given back.
local function charge(start_length, rate, history_length, now)
  rate = tonumber(rate or 0)
  if rate == 0 or tonumber(history_length) <= tonumber(start_length) then
    return
  end
  local spent = spent_tokens(key.tokens, rate, now) + history_length - start_length
  local lifetime_ms = math.ceil(spent * 60000 / rate)
  redis.call('SET', key.tokens, string.format('%.17g %.0f', spent, now), 'PX', lifetime_ms)
end

-- As `charge`, where the script has not read the operation.
local function charge_operation(history_length, now)
  local operation = redis.call('HMGET', key.operation, 'start_length', 'tokens_per_minute')
  charge(operation[1], operation[2], history_length, now)
end

-- Whether a session script's session can be had again when its lane is gone: all of its history is journaled, or what
-- the journal lacks is in snapshots.
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

-- Has a session script's session inherit only the snapshots of this list, of those that it has inherited.
local function disinherit(heirs, kept)
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
    redis.call('ZREM', heirs, unpack(gone))
    redis.call('HSET', key.session, 'inherited', kept)
  end
end

-- The epoch of the next lane of a session script's session: greater than all under which one was opened anywhere, also at
-- a time of which this Redis does not know any more, since it was set back.
local function next_epoch()
  local record = redis.call('HMGET', key.session, 'epoch', 'offered_epoch')
  return string.format('%.0f', math.max(record[1] + 1, (record[2] or 0) + 1, now_ms()))
end

-- Why a worker has no lane for anybody, if it has none: 'away', its incarnation is not alive or is being emptied;
-- 'full', it has not the bytes.
local function refuses_lane(worker, incarnation, lane_bytes)
  local record = redis.call('HMGET', worker, 'incarnation', 'slab_bytes', 'reserved_bytes')
  if record[1] ~= incarnation or is_draining(worker) then
    return 'away'
  end
  return record[2] - record[3] < tonumber(lane_bytes) and 'full'
end

-- Counts the lane that a session script's session is to have, of a worker and by its tenant and key.
local function take_lane(worker, sessions, lane_bytes)
  local record = redis.call('HMGET', key.session, 'tenant', 'key_id')
  redis.call('HINCRBY', worker, 'reserved_bytes', lane_bytes)
  redis.call('HINCRBY', worker, 'num_sessions', 1)
  count_lane(key.usage, record[1] or '', record[2] or '', lane_bytes, 1)
  redis.call('SADD', sessions, arg.session_id)
end

-- Whether a session script's session may go, so that a tenant has its lane: nobody has used it for so long, and it is
-- that tenant's own or of one that holds two lanes more at least. With one more, the two would take it from each other
-- in turn.
local function may_give_way(idle_ms, tenant, now)
  local idle_since = redis.call('ZSCORE', key.idle, arg.session_id)
  if not idle_since or tonumber(idle_since) > now - idle_ms then
    return false
  end
  local record = redis.call('HMGET', key.session, 'tenant', 'reserved_bytes')
  local owner = record[1] or ''
  return owner == tenant or held_bytes(key.usage, owner) >= held_bytes(key.usage, tenant) + 2 * record[2]
end

-- Takes a session script's session off its lane, which is given back. Its history is what is journaled.
local function park()
  give_back()
  redis.call('HSET', key.session, 'state', 'parked', 'worker_id', '', 'incarnation', '', 'address', '',
    'reserved_bytes', 0, 'kv_live_bytes', 0, 'retained', '',
    'history_length', redis.call('HGET', key.session, 'journal_length') or 0)
  redis.call('SREM', key.sessions, arg.session_id)
  redis.call('ZREM', key.idle, arg.session_id)
end

-- Claims a session script's session for good; should its router vanish before delete_session, the reaper closes it again
-- once the lease has lapsed.
local function claim_for_good(claim, router, lease_ms, now)
  redis.call('HSET', key.session, 'state', 'closing')
  redis.call('DEL', key.operation)
  redis.call('HSET', key.operation, 'claim', claim, 'kind', 'close', 'router', router, 'lease_until_ms', now + lease_ms)
  redis.call('ZADD', key.expiry, now + lease_ms, arg.session_id)
  redis.call('ZREM', key.idle, arg.session_id)
  if redis.call('GET', key.request) == arg.session_id then
    redis.call('DEL', key.request)
  end
end

-- The digest of a history is two rests, see kakeya_shared/contract/history_digest.py: of each the prime, 2**32 modulo it, and what
-- takes that back.
local FIRST, OTHER = {65431043, 41949501, 17901329}, {58560287, 20066345, 16218834}
local EMPTY_HISTORY = '0000000100000001'

local function rests(digest)
  return tonumber(string.sub(digest, 1, 8), 16), tonumber(string.sub(digest, 9), 16)
end

-- The digest of a history that tokens, of 4 bytes each, were added to; nil where it is not known.
local function extended_digest(digest, tokens)
  if not digest or tokens == '' then
    return digest
  end
  local rest, other = rests(digest)
  local prime, base, other_prime, other_base = FIRST[1], FIRST[2], OTHER[1], OTHER[2]
  for at = 1, #tokens, 4 do
    local token = struct.unpack('<I4', tokens, at)
    rest = (rest * base + token) % prime
    other = (other * other_base + token) % other_prime
  end
  return string.format('%08x%08x', rest, other)
end

-- The digest of a history as it was before its last tokens came.
local function digest_before(digest, tokens)
  if not digest or tokens == '' then
    return digest
  end
  local rest, other = rests(digest)
  for at = #tokens - 3, 1, -4 do
    local token = struct.unpack('<I4', tokens, at)
    rest = (rest - token) % FIRST[1] * FIRST[3] % FIRST[1]
    other = (other - token) % OTHER[1] * OTHER[3] % OTHER[1]
  end
  return string.format('%08x%08x', rest, other)
end

-- Of a history the tokens from one index to before another, where the journal begins at `first`; without a key, of a
-- session script's session.
local function journaled(first, start, stop, name)
  return stop > start and redis.call('GETRANGE', name or key.journal, 4 * (start - first), 4 * (stop - first) - 1) or ''
end

-- The journal of a session, without keys a session script's: its first index, its length, and the digests of the history
-- there, nil where they are not known. The record has these with the lengths that they are of and the number of rewinds: an
-- older router changes the journal and leaves them as they are. One that is not as long as the record says (it was evicted,
-- say) is torn: it holds nothing, and begins where the history ends.
local function read_journal(session, name)
  local record = redis.call('HMGET', session or key.session,
    'journal_start', 'journal_length', 'journal_digests', 'num_rewinds')
  local first, length = tonumber(record[1] or 0), tonumber(record[2] or 0)
  local start, at_start, stop, at_end, num_rewinds =
    string.match(record[3] or '', '^(%d+) (%x*) (%d+) (%x+) (%d+)$')
  if num_rewinds ~= (record[4] or '0') then
    start, at_start, stop, at_end = nil, nil, nil, nil
  end
  if redis.call('STRLEN', name or key.journal) ~= 4 * (length - first) then
    at_end = tonumber(stop) == length and at_end or nil
    return {first = length, length = length, at_start = at_end, at_end = at_end, is_torn = true}
  end
  if first == 0 then
    at_start, stop, at_end = EMPTY_HISTORY, stop or 0, at_end or EMPTY_HISTORY
  elseif tonumber(start) ~= first or at_start == '' then
    at_start = nil
  end
  stop = tonumber(stop or length)
  if stop < first or stop > length then
    at_end = nil
  end
  return {first = first, length = length, at_start = at_start,
    at_end = extended_digest(at_end, journaled(first, stop, length, name))}
end

-- Writes back what `read_journal` has read, as it is now.
local function write_journal(journal)
  local first, length = string.format('%.0f', journal.first), string.format('%.0f', journal.length)
  local num_rewinds = redis.call('HGET', key.session, 'num_rewinds') or '0'
  redis.call('HSET', key.session, 'journal_start', first, 'journal_length', length, 'journal_digests',
    journal.at_end and table.concat({first, journal.at_start or '', length, journal.at_end, num_rewinds}, ' ') or '')
end

-- The digest of a history at a length that its journal, as `read_journal` has read it, holds; nil: it is not known.
local function digest_at(journal, length, name)
  if length < journal.first or length > journal.length then
    return nil
  end
  return digest_before(journal.at_end, journaled(journal.first, length, journal.length, name))
end

-- Adds tokens, of 4 bytes each, to the journal of a session script's session; the first has the history index `start`.
-- Those that are in it already, by an attempt whose answer was lost, are skipped; it may have more. With the last token of
-- an append the session remembers it, so that its repetition is recognised.
-- Returns the journal's length and the digest there; nil: they do not follow what is in it.
local function extend_journal(start, tokens)
  local journal = read_journal()
  local known = journal.length - start
  if known < 0 then
    return nil
  end
  if known * 4 < #tokens then
    local new = string.sub(tokens, 4 * known + 1)
    if journal.is_torn then
      redis.call('DEL', key.journal)
    end
    redis.call('APPEND', key.journal, new)
    journal.length = start + #tokens / 4
    journal.at_end = extended_digest(journal.at_end, new)
    write_journal(journal)
  end
  local append = redis.call('HMGET', key.operation, 'append_end', 'append_digest', 'start_length')
  if append[1] and tonumber(append[1]) == journal.length then
    redis.call('HSET', key.session, 'append_start', append[3], 'append_end', append[1], 'append_digest', append[2])
  end
  return journal.length, journal.at_end
end

-- Makes a string of tokens all that a session script's journal holds.
local function keep_journaled(tokens)
  redis.call('DEL', key.journal)
  if tokens ~= '' then
    redis.call('SET', key.journal, tokens)
  end
end

-- Takes the tokens of a session script's history from a length on back, of which the digest may be known. What is being
-- written of them meanwhile is of no use.
local function cut_journal(length, digest)
  local journal = read_journal()
  journal.at_end = digest or digest_at(journal, length)
  keep_journaled(journaled(journal.first, journal.first, length))
  if length <= journal.first then
    journal.first, journal.at_start = length, journal.at_end
  end
  journal.length = length
  redis.call('HINCRBY', key.session, 'num_rewinds', 1)
  write_journal(journal)
  redis.call('HDEL', key.session, 'append_end')
end

-- Remembers that a turn of a session script's session ended here, and the three before.
local function add_boundary(length)
  local boundaries = {}
  for boundary in string.gmatch(redis.call('HGET', key.session, 'boundaries') or '', '%d+') do
    boundaries[#boundaries + 1] = boundary
  end
  boundaries[#boundaries + 1] = string.format('%.0f', length)
  redis.call('HSET', key.session, 'boundaries', table.concat(boundaries, ',', math.max(1, #boundaries - 3)))
end

-- Forgets the tokens of a session script's journal before a history index.
local function trim_journal(start)
  local journal = read_journal()
  if start <= journal.first then
    return
  end
  local rest = journaled(journal.first, start, journal.length)
  journal.at_start = extended_digest(journal.at_start, journaled(journal.first, journal.first, start))
  keep_journaled(rest)
  journal.first = start
  write_journal(journal)
end

-- Takes waiters {member, id} out of the line.
local function forget(queue, waiters, gone)
  if #gone == 0 then
    return
  end
  local members, fields = {}, {}
  for i, waiter in ipairs(gone) do
    members[i] = waiter.member
    for _, field in ipairs({'|member', '|wants', '|lease_until_ms'}) do
      fields[#fields + 1] = waiter.id .. field
    end
  end
  redis.call('ZREM', queue, unpack(members))
  redis.call('HDEL', waiters, unpack(fields))
  if redis.call('EXISTS', queue) == 0 then
    redis.call('DEL', waiters)
  end
end

-- Takes a waiter out of the line, if it stands in it.
local function leave_line(queue, waiters, id)
  local member = redis.call('HGET', waiters, id .. '|member')
  if not member then
    return false
  end
  forget(queue, waiters, {{member = member, id = id}})
  return true
end

-- The members of the queue are "TENANT|ticket|waiter id"; '|' is above and '}' beyond all that tenants consist of.
local function parse_member(member)
  return string.match(member, '^(.-)|(%d+)|(.*)$')
end

-- The line is read in batches: with a thousand in it, a command for each of them would keep all others from Redis.
local BATCH = 128

-- The next waiters in the order of the line's text: their members, tenants, ids and one field of each, as arrays;
-- then what those after them are beyond, or false.
local function read_waiters(queue, waiters, bound, field)
  local members = redis.call('ZRANGEBYLEX', queue, bound, '+', 'LIMIT', 0, BATCH)
  local tenants, ids, fields, tenant, prefix = {}, {}, {}, nil, nil
  for i, member in ipairs(members) do
    if not prefix or string.sub(member, 1, #prefix) ~= prefix then
      tenant = parse_member(member)
      prefix = tenant .. '|'
    end
    local id = string.sub(member, #prefix + 18)  -- after the ticket's 16 digits and another '|'
    tenants[i], ids[i], fields[i] = tenant, id, id .. field
  end
  local values = #members > 0 and redis.call('HMGET', waiters, unpack(fields)) or {}
  return members, tenants, ids, values, #members == BATCH and '(' .. members[BATCH]
end

-- What the tenants of a batch hold, by tenant.
local function held_by(usage, tenants)
  local names, fields, held = {}, {}, {}
  for _, tenant in ipairs(tenants) do
    if names[#names] ~= tenant then
      names[#names + 1], fields[#fields + 1] = tenant, tenant .. '|bytes'
    end
  end
  if #names > 0 then
    for i, bytes in ipairs(redis.call('HMGET', usage, unpack(fields))) do
      held[names[i]] = names[i] == INTERRUPTED and -1 or tonumber(bytes or 0)
    end
  end
  return held
end

-- Takes all whose lease has lapsed out of the line, at most once a second; how many those were.
local function purge(queue, waiters, now)
  local purged_ms = redis.call('HGET', waiters, 'purged_ms')
  if redis.call('EXISTS', queue) == 0 or (purged_ms and now - purged_ms < 1000) then
    return 0
  end
  redis.call('HSET', waiters, 'purged_ms', now)
  local bound, num_purged = '-', 0
  while bound do
    local lapsed, members, ids, leases, _ = {}, nil, nil, nil, nil
    members, _, ids, leases, bound = read_waiters(queue, waiters, bound, '|lease_until_ms')
    for i, lease_until in ipairs(leases) do
      if tonumber(lease_until) <= now then
        lapsed[#lapsed + 1] = {member = members[i], id = ids[i]}
      end
    end
    forget(queue, waiters, lapsed)
    num_purged = num_purged + #lapsed
  end
  return num_purged
end

-- Whether what a waiter wants, as JSON holds it, can be had from a worker {incarnation, fingerprint, model,
-- snapshot_store, model_digest}. An older router's waiter says no model, no incarnation, no snapshot store and no model
-- digest, which is of a model that it takes under another fingerprint, too.
local function can_use(wants, worker)
  if (wants.incarnation or '') ~= '' and wants.incarnation ~= worker[1] then
    return false
  end
  if wants.model and wants.model ~= worker[3] then
    return false
  end
  local is_same_model = (wants.model_digest or '') ~= '' and wants.model_digest == worker[5]
  if wants.fingerprint ~= '' and wants.fingerprint ~= worker[2] and not is_same_model then
    return false
  end
  if (wants.snapshot_store or '') ~= '' and wants.snapshot_store ~= worker[4] then
    return false
  end
  for _, incarnation in ipairs(wants.refused) do
    if incarnation == worker[1] then
      return false
    end
  end
  return true
end

-- Numbers of the workers that can be used by who wants this; `known` holds what was asked before.
local function usable_workers(known, text, workers)
  if not known[text] then
    local wants, usable = cjson.decode(text), {}
    for i, worker in ipairs(workers) do
      if can_use(wants, worker) then
        usable[#usable + 1] = i
      end
    end
    known[text] = usable
  end
  return known[text]
end

-- Whether a waiter {bytes, ticket, id} comes before another. Tickets are equally long.
local function comes_before(one, other)
  if one[1] ~= other[1] then
    return one[1] < other[1]
  end
  return one[2] < other[2]
end

-- Who has the turn at each of some workers {incarnation, fingerprint, model, snapshot_store, model_digest}: inside a tenant
-- the oldest, between tenants the one that holds the fewest bytes, then the older. Those whose lease has lapsed do not count if the line
-- may be cleared of them, and leave it where they stood in the way. Who only asks whether anybody comes before
-- `other` {bytes, ticket} is answered with what is known when the first such is found.
-- Returns for each worker {bytes, ticket, id}, or false.
local function first_in_line(queue, waiters, usage, workers, now, may_clear, other)
  local firsts, known, tenant, seen, done, num_done = {}, {}, nil, nil, nil, 0
  for i = 1, #workers do
    firsts[i] = false
  end
  local function has_lapsed(id)
    return may_clear and tonumber(redis.call('HGET', waiters, id .. '|lease_until_ms')) <= now
  end
  -- Whether it counts: where it cannot be the first, nobody asks for its lease.
  local function look_at(candidate, wants)
    local better = {}
    for _, i in ipairs(usable_workers(known, wants, workers)) do
      if not done[i] and (not firsts[i] or comes_before(candidate, firsts[i])) then
        better[#better + 1] = i
      end
    end
    if #better > 0 and has_lapsed(candidate[3]) then
      return false
    end
    for _, i in ipairs(better) do
      firsts[i] = candidate
    end
    return true
  end
  local bound = '-'
  while bound do
    local lapsed, members, tenants, ids, wants = {}, nil, nil, nil, nil
    members, tenants, ids, wants, bound = read_waiters(queue, waiters, bound, '|wants')
    local held = held_by(usage, tenants)
    for i, member in ipairs(members) do
      if tenants[i] ~= tenant then
        tenant, seen, done, num_done = tenants[i], {}, {}, 0
        if other and held[tenant] > other[1] then
          num_done = #workers  -- none of its waiters comes before
        end
      end
      if num_done < #workers and not seen[wants[i]] then
        local ticket = string.sub(member, #tenant + 2, #tenant + 17)
        if look_at({held[tenant], ticket, ids[i]}, wants[i]) then
          seen[wants[i]] = true  -- the next that wants the same comes after it everywhere
          for _, worker in ipairs(usable_workers(known, wants[i], workers)) do
            num_done = num_done + (done[worker] and 0 or 1)
            done[worker] = true
          end
        else
          lapsed[#lapsed + 1] = {member = member, id = ids[i]}
        end
      end
    end
    forget(queue, waiters, lapsed)
    for i = 1, #workers do
      if other and firsts[i] and comes_before(firsts[i], other) then
        return firsts
      end
    end
    if bound and num_done == #workers then
      bound = '(' .. tenant .. '}'
    end
  end
  return firsts
end

-- Whether it is somebody's turn at a worker {incarnation, fingerprint, model, snapshot_store, model_digest}: a newcomer's
-- (waiter_id ''), before whom nobody in the line comes, or that of a waiter who stands in it.
local function has_turn(queue, waiters, usage, worker, tenant, waiter_id, now, may_clear)
  local ticket = '~'  -- a newcomer's is yet to come
  if waiter_id == INTERRUPTED then
    tenant, waiter_id = INTERRUPTED, ''
  elseif waiter_id ~= '' then
    local member = redis.call('HGET', waiters, waiter_id .. '|member')
    if not member then
      return false
    end
    tenant, ticket = parse_member(member)
  end
  local me = {held_bytes(usage, tenant), ticket}
  local first = first_in_line(queue, waiters, usage, {worker}, now, may_clear, me)[1]
  if waiter_id == '' then
    return not (first and comes_before(first, me))
  end
  return first and first[3] == waiter_id
end
