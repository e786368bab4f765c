-- Ends an operation, writes through what the worker has committed, and charges it.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, claim, epoch, history_length, kv_live_bytes and retained of the lane,
--         start and tokens: what was generated and is not journaled yet, as extend_journal.lua takes it,
--         closes: whether a session that lives for one answer ends with it (1 or 0), router and lease_ms of its closing,
--         num_rewinds of the lane, digest of its history ('': not known)
-- returns 'ended'
--         {'closing', record} ended, and claimed for good: it is to be closed under the operation's claim
--         'gone'      closed, lost, taken over or under another lease; nothing is changed
--         'regressed' the committed position fell (INV-2); nothing is changed
--         'unknown'   the lane ends beyond the journal and those tokens, or a rewind took it back and the history not;
--                     nothing is changed
--         'unlike'    the lane holds another history, as where Redis was set back; nothing is changed
local record = redis.call('HMGET', KEYS[1],
  'epoch', 'incarnation', 'history_length', 'kv_live_bytes', 'ttl_ms', 'lane_rewinds')
local operation = redis.call('HMGET', KEYS[2], 'claim', 'start_length', 'tokens_per_minute', 'kind')
if operation[1] ~= ARGV[2] or record[1] ~= ARGV[3] then
  return 'gone'
end
if operation[4] == 'close' then  -- by an attempt whose answer was lost
  return {'closing', redis.call('HGETALL', KEYS[1])}
end
local history_length = tonumber(ARGV[4])
if history_length < tonumber(record[3]) then
  return (operation[4] == 'rewind' or (record[6] or '0') ~= ARGV[12]) and 'unknown' or 'regressed'
end
local journaled = tonumber(redis.call('HGET', KEYS[1], 'journal_length') or 0)
if history_length > math.max(journaled, ARGV[7] + #ARGV[8] / 4) then
  return 'unknown'
end
if ARGV[13] ~= '' then
  local journal = read_journal()
  local num_new = history_length - journal.length
  local new = num_new > 0 and string.sub(ARGV[8], 4 * (journal.length - ARGV[7]) + 1, 4 * (history_length - ARGV[7])) or ''
  local digest = num_new > 0 and extended_digest(journal.at_end, new) or digest_at(journal, history_length)
  if digest and digest ~= ARGV[13] then
    return 'unlike'
  end
end
local journal_length = extend_journal(tonumber(ARGV[7]), ARGV[8])
if not journal_length then
  return 'unknown'
end
local journal = read_journal()
if ARGV[13] ~= '' and history_length == journal_length and (journal.is_torn or not journal.at_end) then
  journal.at_end = ARGV[13]  -- from now on it is known
  journal.at_start = journal.at_start or digest_at(journal, journal.first)
  write_journal(journal)
end
local now = now_ms()
redis.call('HSET', KEYS[1],
  'history_length', ARGV[4], 'kv_live_bytes', ARGV[5], 'retained', ARGV[6], 'idle_since_ms', now)
if redis.call('HGET', KEYS[3], 'incarnation') == record[2] then
  add_count(KEYS[3], 'kv_live_bytes', ARGV[5] - record[4])
end
charge(operation[2], operation[3], journal_length, now)
if operation[4] == 'generate' and journal_length > tonumber(operation[2]) then
  add_boundary(journal_length)
end
if ARGV[9] == '1' and operation[4] == 'generate' and redis.call('HGET', KEYS[1], 'ephemeral') == '1' then
  claim_for_good(ARGV[2], ARGV[10], ARGV[11], now)
  return {'closing', redis.call('HGETALL', KEYS[1])}
end
redis.call('DEL', KEYS[2])
redis.call('ZADD', KEYS[5], now + record[5], ARGV[1])
redis.call('ZADD', KEYS[10], now, ARGV[1])
return 'ended'
