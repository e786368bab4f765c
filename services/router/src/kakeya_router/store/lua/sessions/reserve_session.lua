-- Reserves a lane for a new session, if its worker is alive, has the bytes, and nobody in the line comes first. A
-- waiter leaves the line with it. A fork has from here on what its source has of the history that they share.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal,
--         then of a fork: session and journal of its source, and heirs
-- ARGV    session_id, claim, router, lease_ms, request_ttl_ms (0: no request id), waiter_id ('': not in the line),
--         max_sessions, max_reserved_bytes, key_max_sessions (0: no limit),
--         may_clear (0: a waiter whose lease has lapsed still counts),
--         start_length (its prefill begins there), tokens_per_minute (0: no limit, or it has no prefill): what the
--         tenant may use, charged when it is open or given up,
--         length of the history that a fork begins with, and what its source must have to be had there (see past.py; '':
--         whatever it has, since the lane is copied),
--         then field, value, ... of the session record
-- returns {'reserved'}
--         {'duplicate', session_id} the request id was answered before, with that session; a waiter left the line
--         {'quota', name, limit}    it would exceed this quota; a waiter left the line
--         {'quota', 'tokens_per_minute', limit, retry_ms} likewise: the tenant has used up its tokens for so long
--         {'full'}                  the worker has not the bytes, or is being emptied
--         {'wait'}                  somebody else has the turn at this worker
--         {'gone'}                  the incarnation is not alive
--         {'changed'}               the source of the fork does not have that any more
local session_id, claim, router, lease_ms, request_ttl_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local waiter_id = ARGV[6]
local function step_out()
  if waiter_id ~= '' and leave_line(KEYS[8], KEYS[9], waiter_id) then
    announce_room(KEYS[8])
  end
end
-- What a fork has of its source at a length: the start of its journal and the tokens in it, snapshots and their store;
-- nil: the source has not what it must have.
local function inherited(length, needed)
  local source = redis.call('HMGET', KEYS[13],
    'journal_start', 'num_rewinds', 'snapshots', 'snapshot_store', 'inherited', 'inherited_store')
  local function text(number, default)
    return source[number] or default
  end
  local has = table.concat({text(1, '0'), text(2, '0'), text(5, ''), text(3, '')}, '|')
  local start = math.min(tonumber(text(1, 0)), length)
  local tokens = length > start and redis.call('GETRANGE', KEYS[14], 0, 4 * (length - start) - 1) or ''
  if redis.call('EXISTS', KEYS[13]) == 0 or (needed ~= '' and needed ~= has) or #tokens < 4 * (length - start) then
    return nil
  end
  local snapshots, store = snapshots_until(length, source[5]), text(6, '')
  local own = snapshots_until(length, source[3])
  if #own > 0 and store ~= text(4, '') then
    snapshots, store = {}, text(4, '')
  end
  for _, snapshot in ipairs(own) do
    snapshots[#snapshots + 1] = snapshot
  end
  if #snapshots > 0 and snapshots[#snapshots][3] < start then
    snapshots = {}  -- what came after them is nowhere
  end
  local journal = read_journal(KEYS[13], KEYS[14])
  return {tokens = tokens, snapshots = snapshots, store = store, journal = {
    first = start, length = length, at_start = start == journal.first and journal.at_start or nil,
    at_end = digest_at(journal, length, KEYS[14])}}
end
local function inherit(from)
  write_journal(from.journal)
  if from.tokens ~= '' then
    redis.call('SET', KEYS[12], from.tokens)
  end
  if #from.snapshots > 0 then
    redis.call('HSET', KEYS[1], 'inherited', cjson.encode(from.snapshots), 'inherited_store', from.store)
    for _, snapshot in ipairs(from.snapshots) do
      redis.call('ZADD', KEYS[15], 0, snapshot[1] .. '|' .. session_id)
    end
  end
end
if request_ttl_ms ~= '0' then
  local earlier = redis.call('GET', KEYS[6])
  if earlier then
    step_out()
    return {'duplicate', earlier}
  end
end
local record = {}
for i = 15, #ARGV, 2 do
  record[ARGV[i]] = ARGV[i + 1]
end
local worker = redis.call('HMGET', KEYS[3],
  'incarnation', 'slab_bytes', 'reserved_bytes', 'fingerprint', 'model', 'snapshot_store',
  'model_digest')
if worker[1] ~= record['incarnation'] then
  return {'gone'}
end
local tenant, key_id, bytes = record['tenant'], record['key_id'], record['reserved_bytes']
local quota, limit = quota_reached(KEYS[7], tenant, key_id, bytes, 0, ARGV[7], ARGV[8], ARGV[9])
if quota then
  step_out()
  return {'quota', quota, limit}
end
local now = now_ms()
local back_ms = tokens_back_ms(tonumber(ARGV[12]), now)
if back_ms then
  step_out()
  return {'quota', 'tokens_per_minute', ARGV[12], back_ms}
end
if worker[2] - worker[3] < tonumber(bytes) or is_draining(KEYS[3]) then
  return {'full'}
end
local at = {worker[1], worker[4] or '', worker[5], worker[6], worker[7]}
if not has_turn(KEYS[8], KEYS[9], KEYS[7], at, tenant, waiter_id, now, ARGV[10] == '1') then
  return {'wait'}
end
local inheritance = {}
if KEYS[13] then
  inheritance = inherited(tonumber(ARGV[13]), ARGV[14])
  if not inheritance then
    return {'changed'}
  end
end
redis.call('HSET', KEYS[1], unpack(ARGV, 15))
if KEYS[13] then
  inherit(inheritance)
end
redis.call('HSET', KEYS[1], 'idle_since_ms', now)
redis.call('HSET', KEYS[2], 'claim', claim, 'kind', 'create', 'router', router, 'lease_until_ms', now + lease_ms,
  'start_length', ARGV[11], 'tokens_per_minute', ARGV[12])
redis.call('HINCRBY', KEYS[3], 'reserved_bytes', bytes)
redis.call('HINCRBY', KEYS[3], 'num_sessions', 1)
count_lane(KEYS[7], tenant, key_id, bytes, 1)
redis.call('SADD', KEYS[4], session_id)
-- Should this router vanish now, the reaper takes the session once the lease has lapsed.
redis.call('ZADD', KEYS[5], now + lease_ms, session_id)
if request_ttl_ms ~= '0' then
  redis.call('SET', KEYS[6], session_id, 'PX', request_ttl_ms)
end
step_out()
return {'reserved'}
