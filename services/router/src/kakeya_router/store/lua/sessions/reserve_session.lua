-- Reserves a lane for a new session, if its worker is alive, has the bytes, and nobody in the queue comes first. A
-- waiter leaves the queue with it. A fork has from here on what its source has of the history that they share.
-- of a session
-- key source, source_journal, heirs, source_tags: of a fork: session, journal and tags of its source
-- arg claim, router, lease_ms
-- arg request_ttl_ms: 0: no request id
-- arg waiter_id: '': not in the queue
-- arg max_sessions, max_reserved_bytes, key_max_sessions: 0: no limit
-- arg may_clear: 0: a waiter whose lease has lapsed still counts
-- arg start_length: its prefill begins there
-- arg tokens_per_minute: what the tenant may use, charged when it is open or given up; 0: no limit, or it has no
--     prefill
-- arg length: of the history that a fork begins with
-- arg needed: what its source must have for that (see past.py); '': whatever it has, since the lane is copied
-- arg record...: field, value, ... of the session
-- out reserved
-- out duplicate: the request id was answered before; a waiter left the queue
-- out quota {name, limit, retry_ms}: it would exceed this quota, or has used up its tokens for so long; a waiter left
--     the queue
-- out full: the worker has not the bytes, or is drained
-- out wait: another waiter comes first at this worker
-- out gone: the incarnation is not alive
-- out changed: the source of the fork does not have that any more
-- What a fork has of its source at a length: the start of its journal and the tokens in it, snapshots and their store;
-- nil: the source has not what it must have.
local function inherited(length, needed)
  local source = redis.call('HMGET', key.source,
    'journal_start', 'num_rewinds', 'snapshots', 'snapshot_store', 'inherited', 'inherited_store')
  local function text(number, default)
    return source[number] or default
  end
  local has = table.concat({text(1, '0'), text(2, '0'), text(5, ''), text(3, '')}, '|')
  local start = math.min(tonumber(text(1, 0)), length)
  local tokens = journaled(start, start, length, key.source_journal)
  if redis.call('EXISTS', key.source) == 0 or (needed ~= '' and needed ~= has) or #tokens < 4 * (length - start) then
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
  local journal = read_journal(key.source, key.source_journal)
  return {tokens = tokens, snapshots = snapshots, store = store, journal = {
    first = start, length = length, at_start = start == journal.first and journal.at_start or nil,
    at_end = digest_at(journal, length, key.source_journal)}}
end
-- A fork has the tags of its source's places up to where it begins, which are found once it is open. A session that is a
-- head alone is the head of all its forks. One that ends with its answer has none: who found it would be ended, too.
local function inherit_tags(length)
  if redis.call('HGET', key.session, 'ephemeral') == '1' or not has_true_tags(key.source, key.source_tags) then
    return
  end
  local is_of_head = redis.call('HGET', key.source, 'head') == '1'
  for _, each in ipairs(tagged_places(redis.call('HGETALL', key.source_tags))) do
    if each.length <= length and not (is_of_head and each.kind == 'head') then
      redis.call('HSET', key.tags, each.place, each.text, 'index', key.tagged, 'num_rewinds', 0)
    end
  end
end
-- Makes the session one of a group, of which its tenant keeps some: of heads, or of disposable forks of equal histories.
-- Equal histories are one place, whichever session they are found in: a fork of a fork counts as one of the source.
local function join_group(record, inheritance)
  local group = record['head'] == '1' and 'head' or ''
  local is_fork = key.source and redis.call('HGET', key.source, 'head') ~= '1'
  if group == '' and record['disposable'] == '1' and is_fork and inheritance.journal.at_end then
    group = arg.length .. '.' .. inheritance.journal.at_end
  end
  if group ~= '' then
    redis.call('HSET', key.session, 'group', group)
    redis.call('ZADD', key.groups, 0, group_prefix(record['tenant'], group) .. arg.session_id)
  end
end
local function inherit(from)
  write_journal(from.journal)
  if from.tokens ~= '' then
    redis.call('SET', key.journal, from.tokens)
  end
  if #from.snapshots > 0 then
    redis.call('HSET', key.session, 'inherited', cjson.encode(from.snapshots), 'inherited_store', from.store)
    for _, snapshot in ipairs(from.snapshots) do
      redis.call('ZADD', key.heirs, 0, snapshot[1] .. '|' .. arg.session_id)
    end
  end
end
if arg.request_ttl_ms ~= '0' and redis.call('EXISTS', key.request) == 1 then
  leave_queue()
  return {'duplicate'}
end
local record = {}
for i = 1, #arg.record, 2 do
  record[arg.record[i]] = arg.record[i + 1]
end
local worker = redis.call('HMGET', key.worker, 'incarnation', 'slab_bytes', 'reserved_bytes')
if worker[1] ~= record['incarnation'] then
  return {'gone'}
end
local tenant, key_id, bytes = record['tenant'], record['key_id'], record['reserved_bytes']
local quota, limit = quota_reached(tenant, key_id, bytes, 0)
if quota then
  leave_queue()
  return {'quota', quota, limit}
end
local now = now_ms()
local back_ms = tokens_back_ms(now)
if back_ms then
  leave_queue()
  return {'quota', 'tokens_per_minute', arg.tokens_per_minute, back_ms}
end
if worker[2] - worker[3] < tonumber(bytes) or takes_nobody(key.worker) then
  return {'full'}
end
if not is_first(tenant, now) then
  return {'wait'}
end
local inheritance = {}
if key.source then
  inheritance = inherited(tonumber(arg.length), arg.needed)
  if not inheritance then
    return {'changed'}
  end
end
redis.call('HSET', key.session, unpack(arg.record))
if key.source then
  inherit(inheritance)
  inherit_tags(tonumber(arg.length))
end
join_group(record, inheritance)
redis.call('HSET', key.session, 'idle_since_ms', now)
redis.call('HSET', key.operation, 'claim', arg.claim, 'kind', 'create', 'router', arg.router,
  'lease_until_ms', now + arg.lease_ms, 'start_length', arg.start_length, 'tokens_per_minute', arg.tokens_per_minute)
take_lane(key.worker, key.sessions, bytes)
announce_change(arg.session_id)
-- Should this router vanish now, the reaper takes the session once the lease has lapsed.
redis.call('ZADD', key.expiry, now + arg.lease_ms, arg.session_id)
if arg.request_ttl_ms ~= '0' then
  redis.call('SET', key.request, arg.session_id, 'PX', arg.request_ttl_ms)
end
leave_queue()
return {'reserved'}
