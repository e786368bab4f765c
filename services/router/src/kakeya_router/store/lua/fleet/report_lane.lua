-- Takes over what a heartbeat says of one lane, never backwards.
-- key session, worker, operation, sessions, expiry, idle
-- arg incarnation, epoch, history_length, kv_live_bytes, retained, num_rewinds, session_id
-- arg lane: its number on the worker; '': not said
-- out updated
-- out kept: the lane is being opened or closed, or was taken back since, or the record knows more; or the session may
--     be on its way to this lane (see offer_lane.lua); or the lane is ahead of the history and nobody generates, as
--     where Redis was set back: the next call finds out
-- out orphan: no lease covers the lane
local record = redis.call('HMGET', key.session,
  'state', 'incarnation', 'epoch', 'history_length', 'kv_live_bytes', 'lane_rewinds',
  'offered_epoch', 'offered_until_ms', 'journal_length', 'ttl_ms', 'idle_since_ms', 'lane_place')
local state, incarnation, epoch = record[1], record[2], record[3]
if record[7] == arg.epoch and tonumber(record[8] or 0) > now_ms() then
  return 'kept'
end
if not state or state == 'lost' or state == 'failed' or incarnation ~= arg.incarnation or epoch ~= arg.epoch then
  return 'orphan'
end
local place = epoch .. ' ' .. arg.lane
if arg.lane ~= '' and record[12] ~= place then
  redis.call('HSET', key.session, 'lane_place', place)
  announce_change(arg.session_id)
end
if state == 'open' then  -- lists that Redis has evicted come back so
  redis.call('SADD', key.sessions, arg.session_id)
  redis.call('ZADD', key.expiry, 'NX', now_ms() + record[10], arg.session_id)
  if redis.call('EXISTS', key.operation) == 0 then
    redis.call('ZADD', key.idle, 'NX', record[11], arg.session_id)
  end
end
if state ~= 'open' or tonumber(arg.history_length) < tonumber(record[4]) or (record[6] or '0') ~= arg.num_rewinds then
  return 'kept'
end
local is_ahead = tonumber(arg.history_length) > tonumber(record[9] or arg.history_length)
if is_ahead and redis.call('HGET', key.operation, 'kind') ~= 'generate' then  -- an append is journaled before
  return 'kept'
end
redis.call('HSET', key.session,
  'history_length', arg.history_length, 'kv_live_bytes', arg.kv_live_bytes, 'retained', arg.retained)
if arg.history_length ~= record[4] or arg.kv_live_bytes ~= record[5] then
  announce_change(arg.session_id)
end
if redis.call('HGET', key.worker, 'incarnation') == incarnation then
  add_count(key.worker, 'kv_live_bytes', arg.kv_live_bytes - record[5])
end
return 'updated'
