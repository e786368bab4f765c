-- Ends the opening of a session, and charges its prefill: the worker has taken the lane.
-- of a session
-- key source: of a fork from lane to lane: its session
-- arg claim
-- arg sink, window: that the worker chose
-- arg history_length, kv_live_bytes, retained: of the lane; of a new session's, 0, 0 and ''
-- arg num_rewinds: of the source before this was reserved
-- out open {record}
-- out gone: the lease lapsed and was taken over, or the worker was lost meanwhile; or its source was taken back or
--     closed meanwhile, and nobody can tell whether the lane holds what the fork has of its journal
local record = redis.call('HMGET', key.session, 'state', 'incarnation', 'ttl_ms')
if record[1] ~= 'opening' or redis.call('HGET', key.operation, 'claim') ~= arg.claim
  or redis.call('HGET', key.worker, 'incarnation') ~= record[2] then
  return {'gone'}
end
if key.source then
  local source = redis.call('HMGET', key.source, 'state', 'num_rewinds')
  if not source[1] or source[1] == 'closing' or (source[2] or '0') ~= arg.num_rewinds then
    return {'gone'}
  end
end
local now = now_ms()
redis.call('HSET', key.session, 'state', 'open', 'sink', arg.sink, 'window', arg.window, 'idle_since_ms', now,
  'history_length', arg.history_length, 'kv_live_bytes', arg.kv_live_bytes, 'retained', arg.retained)
redis.call('HINCRBY', key.worker, 'kv_live_bytes', arg.kv_live_bytes)
charge(arg.history_length, now)
redis.call('DEL', key.operation)
publish_tags()
redis.call('ZADD', key.expiry, now + record[3], arg.session_id)
be_idle(now)
return {'open', redis.call('HGETALL', key.session)}
