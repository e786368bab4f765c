-- Ends the opening of a session, and charges its prefill: the worker has taken the lane.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal,
--         then of a fork from lane to lane: session of its source
-- ARGV    session_id, claim, sink and window that the worker chose,
--         history_length, kv_live_bytes and retained of the lane: of a new session's, 0, 0 and '',
--         num_rewinds of its source before it was reserved (of a fork from lane to lane)
-- returns {'open', record}
--         {'gone'} the lease lapsed and was taken over, or the worker was lost meanwhile; or its source was taken back or
--                  closed meanwhile, and nobody can tell whether the lane holds what the fork has of its journal
local record = redis.call('HMGET', KEYS[1], 'state', 'incarnation', 'ttl_ms')
if record[1] ~= 'opening' or redis.call('HGET', KEYS[2], 'claim') ~= ARGV[2]
  or redis.call('HGET', KEYS[3], 'incarnation') ~= record[2] then
  return {'gone'}
end
if KEYS[13] then
  local source = redis.call('HMGET', KEYS[13], 'state', 'num_rewinds')
  if not source[1] or source[1] == 'closing' or (source[2] or '0') ~= ARGV[8] then
    return {'gone'}
  end
end
local now = now_ms()
redis.call('HSET', KEYS[1], 'state', 'open', 'sink', ARGV[3], 'window', ARGV[4], 'idle_since_ms', now,
  'history_length', ARGV[5], 'kv_live_bytes', ARGV[6], 'retained', ARGV[7])
redis.call('HINCRBY', KEYS[3], 'kv_live_bytes', ARGV[6])
charge_operation(ARGV[5], now)
redis.call('DEL', KEYS[2])
redis.call('ZADD', KEYS[5], now + record[3], ARGV[1])
redis.call('ZADD', KEYS[10], now, ARGV[1])
return {'open', redis.call('HGETALL', KEYS[1])}
