-- Takes over what a heartbeat says of one lane, never backwards.
-- KEYS    session, worker, operation, sessions, expiry, idle
-- ARGV    incarnation, epoch, history_length, kv_live_bytes, retained, num_rewinds, session_id
-- returns 'updated'
--         'kept'   the lane is being opened or closed, or was taken back since, or the record knows more; or the session
--                  may be on its way to this lane (see offer_lane.lua); or the lane is ahead of the history and nobody
--                  generates, as where Redis was set back: the next call finds out
--         'orphan' no lease covers the lane
local record = redis.call('HMGET', KEYS[1],
  'state', 'incarnation', 'epoch', 'history_length', 'kv_live_bytes', 'lane_rewinds',
  'offered_epoch', 'offered_until_ms', 'journal_length', 'ttl_ms', 'idle_since_ms')
local state, incarnation, epoch = record[1], record[2], record[3]
if record[7] == ARGV[2] and tonumber(record[8] or 0) > now_ms() then
  return 'kept'
end
if not state or state == 'lost' or state == 'failed' or incarnation ~= ARGV[1] or epoch ~= ARGV[2] then
  return 'orphan'
end
if state == 'open' then  -- lists that Redis has evicted come back so
  redis.call('SADD', KEYS[4], ARGV[7])
  redis.call('ZADD', KEYS[5], 'NX', now_ms() + record[10], ARGV[7])
  if redis.call('EXISTS', KEYS[3]) == 0 then
    redis.call('ZADD', KEYS[6], 'NX', record[11], ARGV[7])
  end
end
if state ~= 'open' or tonumber(ARGV[3]) < tonumber(record[4]) or (record[6] or '0') ~= ARGV[6] then
  return 'kept'
end
if tonumber(ARGV[3]) > tonumber(record[9] or ARGV[3]) and redis.call('EXISTS', KEYS[3]) == 0 then
  return 'kept'
end
redis.call('HSET', KEYS[1], 'history_length', ARGV[3], 'kv_live_bytes', ARGV[4], 'retained', ARGV[5])
if redis.call('HGET', KEYS[2], 'incarnation') == incarnation then
  add_count(KEYS[2], 'kv_live_bytes', ARGV[4] - record[5])
end
return 'updated'
