-- Ends an operation, writes through what the worker has committed, and charges it.
-- of a session
-- arg claim, epoch
-- arg history_length, kv_live_bytes, retained: of the lane
-- arg start, tokens: what was generated and is not journaled yet, as extend_journal.lua takes it
-- arg closes: 1: a session that lives for one answer ends with it; 2: any does
-- arg router, lease_ms: of its closing
-- arg num_rewinds: of the lane
-- arg digest: of its history; '': not known
-- arg turn: figures of the answer that it ends with (see last_turn.py); '': it ends with none
-- arg drafted, accepted: drafts of that answer that were checked, and right
-- out ended
-- out closing {record}: ended, and claimed for good: it is to be closed under the operation's claim
-- out gone: closed, lost, taken over or under another lease; nothing is changed
-- out regressed: the committed position fell (INV-2); nothing is changed
-- out unknown: the lane ends beyond the journal and those tokens, or these do not follow the journal, as where Redis was
--     set back, or a rewind took the lane back and the history not; nothing is changed
-- out unlike: the lane holds another history, as where Redis was set back; nothing is changed
local record = redis.call('HMGET', key.session,
  'epoch', 'incarnation', 'history_length', 'kv_live_bytes', 'ttl_ms', 'lane_rewinds')
local operation = redis.call('HMGET', key.operation, 'claim', 'kind', 'start_length', 'append_end')
if operation[1] ~= arg.claim or record[1] ~= arg.epoch then
  return 'gone'
end
if operation[2] == 'close' then  -- by an attempt whose answer was lost
  return {'closing', redis.call('HGETALL', key.session)}
end
local history_length = tonumber(arg.history_length)
if history_length < tonumber(record[3]) then
  return (operation[2] == 'rewind' or (record[6] or '0') ~= arg.num_rewinds) and 'unknown' or 'regressed'
end
local journal = read_journal()
local known = journal.length - arg.start
if known < 0 or history_length > math.max(journal.length, arg.start + #arg.tokens / 4) then
  return 'unknown'
end
if arg.digest ~= '' then
  local num_new = history_length - journal.length
  local new = num_new > 0 and string.sub(arg.tokens, 4 * known + 1, 4 * (known + num_new)) or ''
  local digest = num_new > 0 and extended_digest(journal.at_end, new) or digest_at(journal, history_length)
  if digest and digest ~= arg.digest then
    return 'unlike'
  end
end
extend_journal(journal, operation[4])
local journal_length = journal.length
if arg.digest ~= '' and history_length == journal_length and (journal.is_torn or not journal.at_end) then
  journal.at_end = arg.digest  -- from now on it is known
  journal.at_start = journal.at_start or digest_at(journal, journal.first)
  write_journal(journal)
end
local now = now_ms()
redis.call('HSET', key.session, 'history_length', arg.history_length, 'kv_live_bytes', arg.kv_live_bytes,
  'retained', arg.retained, 'idle_since_ms', now)
if redis.call('HGET', key.worker, 'incarnation') == record[2] then
  add_count(key.worker, 'kv_live_bytes', arg.kv_live_bytes - record[4])
end
if arg.turn ~= '' then
  redis.call('HSET', key.session, 'last_turn', arg.turn .. ' ' .. string.format('%.0f', now))
end
if tonumber(arg.drafted) > 0 then
  redis.call('HINCRBY', key.session, 'drafted_tokens', arg.drafted)
  redis.call('HINCRBY', key.session, 'accepted_tokens', arg.accepted)
end
charge(journal_length, now)
if operation[2] == 'generate' and journal_length > tonumber(operation[4] or operation[3]) then
  add_boundary(journal_length)
end
local lives_for_this = operation[2] == 'generate' and redis.call('HGET', key.session, 'ephemeral') == '1'
if arg.closes == '2' or (arg.closes == '1' and lives_for_this) then
  claim_for_good(now)
  return {'closing', redis.call('HGETALL', key.session)}
end
redis.call('DEL', key.operation)
redis.call('ZADD', key.expiry, now + record[5], arg.session_id)
be_idle(now)
return 'ended'
