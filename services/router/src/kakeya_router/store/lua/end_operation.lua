-- Ends an operation, writes through what the worker has committed, and charges it.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens
-- ARGV    session_id, op_id, epoch, history_length, kv_live_bytes, retained
-- returns 'ended'
--         'gone'      closed, lost, taken over or under another lease; nothing is changed
--         'regressed' the committed position fell (INV-2); nothing is changed
local record = redis.call('HMGET', KEYS[1], 'epoch', 'incarnation', 'history_length', 'kv_live_bytes', 'ttl_ms')
local operation = redis.call('HMGET', KEYS[2],
  'op_id', 'start_length', 'append_end', 'append_digest', 'tokens_per_minute')
if operation[1] ~= ARGV[2] or record[1] ~= ARGV[3] then
  return 'gone'
end
if tonumber(ARGV[4]) < tonumber(record[3]) then
  return 'regressed'
end
local now = now_ms()
redis.call('HSET', KEYS[1],
  'history_length', ARGV[4], 'kv_live_bytes', ARGV[5], 'retained', ARGV[6], 'idle_since_ms', now)
if operation[3] == ARGV[4] then
  redis.call('HSET', KEYS[1], 'append_start', operation[2], 'append_end', operation[3], 'append_digest', operation[4])
end
if redis.call('HGET', KEYS[3], 'incarnation') == record[2] then
  redis.call('HINCRBY', KEYS[3], 'kv_live_bytes', ARGV[5] - record[4])
end
charge(operation[2], operation[5], ARGV[4], now)
redis.call('DEL', KEYS[2])
redis.call('ZADD', KEYS[5], now + record[5], ARGV[1])
redis.call('ZADD', KEYS[10], now, ARGV[1])
return 'ended'
