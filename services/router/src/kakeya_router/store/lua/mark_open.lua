-- Ends the opening of a session: the worker has taken the lane.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens
-- ARGV    session_id, op_id, sink and window that the worker chose,
--         history_length, kv_live_bytes and retained of the lane: of a new session's, 0, 0 and ''
-- returns {'open', record}
--         {'gone'} the lease lapsed and was taken over, or the worker was lost meanwhile
local record = redis.call('HMGET', KEYS[1], 'state', 'incarnation', 'ttl_ms')
if record[1] ~= 'opening' or redis.call('HGET', KEYS[2], 'op_id') ~= ARGV[2]
  or redis.call('HGET', KEYS[3], 'incarnation') ~= record[2] then
  return {'gone'}
end
local now = now_ms()
redis.call('HSET', KEYS[1], 'state', 'open', 'sink', ARGV[3], 'window', ARGV[4], 'idle_since_ms', now,
  'history_length', ARGV[5], 'kv_live_bytes', ARGV[6], 'retained', ARGV[7])
redis.call('HINCRBY', KEYS[3], 'kv_live_bytes', ARGV[6])
redis.call('DEL', KEYS[2])
redis.call('ZADD', KEYS[5], now + record[3], ARGV[1])
redis.call('ZADD', KEYS[10], now, ARGV[1])
return {'open', redis.call('HGETALL', KEYS[1])}
